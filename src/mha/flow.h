// Where everything lies during one run of the block: plain views, so that the stages compute through them and trace()
// can tell about them afterwards.
#pragma once

#include <cstddef>

#include <headwise/tensor.h>

#include "mha/block.h"
#include "mha/call.h"

namespace headwise {

struct Flow {
    ConstTensorView x, key, value;  // sources [B,T,E], [B,N,key_embed_dim], [B,N,value_embed_dim]
    bool self = false;              // q, k and v come from one pass over x
    bool fused_kv = false;          // k and v come from one pass over their common source

    // Stage 1 writes rows; what follows are bands of them.
    TensorView q_rows;          // [B,T,W]: q, or what q is made from, and the gate; in self attention k and v too
    TensorView k_rows, v_rows;  // [B,N,W]: likewise, or the same rows
    TensorView q_latent;        // [B,T,1,q_rank]
    TensorView router;          // [B,T,experts]
    TensorView gate;            // [B,T,H] or [B,T,H,Dv]
    TensorView latent;          // [B,N,1,kv_rank + rope_dim]: the latent, then the key that all heads share
    TensorView up_rows;         // [B,N,H*D + H*Dv]: k and v of the naive form
    TensorView q_up_rows;       // [B,T,H*D]: q made from its latent, or by experts
    TensorView q, k, v;         // heads [B,T,H,D], [B,N,G,D], [B,N,G,Dv]

    TensorView absorbed_q;    // [B,T,H,kv_rank + rope_dim]
    TensorView absorbed_out;  // [B,T,H,kv_rank] f32
    TensorView all_heads;     // [B,T,H,Dv] f32: every head writes into its own band of the row
    TensorView merged_heads;  // [B,T,M,Dv]: the first M = H of them, or H/2 after the difference
    TensorView merged;        // [B,T,M*Dv]: the row that W_O reads
    TensorView y;             // [B,T,out_dim]

    TensorView offsets;       // i64 [B], with a cache: position of query row 0
    TensorView rope_offsets;  // i64 [B], where a cache gives the rotation's positions
    TensorView tau;           // f32 [B,T]
    TensorView lse;           // f32 [B,H,T]: the caller's, or our own where something needs it
};

// Lays the views of one run into memory from `base` on; with null, only tells the size.
std::size_t lay_out(const Block& block, const Call& call, std::byte* base, Flow& flow);

}  // namespace headwise
