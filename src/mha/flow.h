// Where everything lies during one run of the block: plain views, so that forward() computes through them and trace()
// can tell about them afterwards.
#pragma once

#include <headwise/tensor.h>

namespace headwise {

struct Flow {
    ConstTensorView x, key, value;  // sources [B,T,E], [B,S,key_embed_dim], [B,S,value_embed_dim]
    TensorView q_rows;              // [B,T,W]: the buffer row that holds q (and k and v in self attention)
    TensorView k_rows, v_rows;      // [B,S,W]: likewise
    TensorView q, k, v;             // heads [B,T,H,D], [B,S,G,D], [B,S,G,Dv]: views of the rows
    TensorView merged_heads;        // [B,T,H,Dv]: every head writes into its own band ...
    TensorView merged;              // [B,T,H*Dv]: ... of the row that W_O reads
    TensorView y;                   // [B,T,out_dim]
    bool self = false;              // q, k and v come from one pass over x
    bool fused_kv = false;          // k and v come from one pass over their common source
};

}  // namespace headwise
