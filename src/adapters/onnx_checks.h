// What the ONNX operators accept, and their tensors as [B,tokens,heads,width].
#pragma once

#include <cstdint>

#include <headwise/onnx.h>

namespace headwise::onnx {

// The operands of one call of Attention as views of what was given: nothing is copied.
struct AttentionShapes {
    ConstTensorView q, k, v;               // [B,T,H,D], [B,L,G,D], [B,L,G,Dv]
    ConstTensorView past_key, past_value;  // [B,P,G,...], or empty
    TensorView y, present_key, present_value;
    TensorView scores;  // [B,H,T,S], or empty
    std::int64_t B, T, H, G, D, Dv, past, fresh;

    std::int64_t keys() const noexcept { return past + fresh; }
};

// Throws invalid_argument; afterwards only what attend() checks itself can be wrong.
AttentionShapes check_attention(const AttentionInputs& inputs, const AttentionAttributes& attributes,
                                const AttentionOutputs& outputs);

// How many keys the mask's last axis covers: those beyond are hidden from every row. All where it broadcasts.
std::int64_t mask_reach(const AttentionInputs& inputs, int opset, std::int64_t keys);

// Rank 4 [B,N,T,D], or rank 3 [B,T,N*D] with N given, as [B,T,N,D].
template <class Data>
BasicView<Data> by_token(const BasicView<Data>& x, std::int64_t heads, const char* where, const char* name,
                         const char* attribute);

}  // namespace headwise::onnx
