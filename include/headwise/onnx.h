// The ONNX operators Attention (opsets 23 to 25), RotaryEmbedding and RMSNormalization (opset 23) in terms of headwise.
// Names are the operators' own, in snake case; an attribute that is left out has the operator's default. docs/onnx.md
// says what is decided where the operators' texts leave something open. All functions throw invalid_argument before
// any memory is touched. Views carry any strides, innermost 1.
#pragma once

#include <cstdint>
#include <optional>

#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/tensor.h>

namespace headwise::onnx {

// f32, bf16, f16 or f64, one type for Q, K, V, past and Y. Rank 4 is [B,heads,sequence,width], rank 3 is
// [B,sequence,heads*width]. T is the sequence of Q, L that of K, P that of the past, S = P + L.
struct AttentionInputs {
    ConstTensorView q{}, k{}, v{};
    ConstTensorView attn_mask{};               // bool (true = attend) or float (added); right-aligned to [B,H,T,S]
    ConstTensorView past_key{}, past_value{};  // [B,G,P,width]: both or none
    ConstTensorView nonpad_kv_seqlen{};        // i64 [B]: valid keys of a cache outside; opset 24 and later
};

struct AttentionAttributes {
    int opset = 25;
    bool is_causal = false;
    std::int64_t q_num_heads = 0, kv_num_heads = 0;  // of rank 3
    std::optional<double> scale{};
    double softcap = 0;
    std::int64_t left_window_size = -1, right_window_size = -1;  // opset 25
    int qk_matmul_output_mode = 0;  // 0: scaled scores, 1: after softcap, 2: after bias and mask, 3: weights
    int softmax_precision = 0;      // a TensorProto type, at least f32 in any case; 0: not given
};

struct AttentionOutputs {
    TensorView y{};                 // of the rank and type of Q
    TensorView present_key{},       // optional [B,G,S,width]: past and new keys joined. The past may be the
        present_value{};            // first part of the same memory: then it stays where it is
    TensorView qk_matmul_output{};  // optional [B,H,T,S], the type of Q
};

HEADWISE_API void attention(const AttentionInputs& inputs, const AttentionAttributes& attributes,
                            const AttentionOutputs& outputs, const Execution& execution = {});

struct RotaryAttributes {
    bool interleaved = false;
    std::int64_t num_heads = 0;             // of rank 3
    std::int64_t rotary_embedding_dim = 0;  // R; 0: the whole head
};

// x [B,N,T,D] or [B,T,N*D], f32, bf16 or f16 -> y, of the same shape and type; y may be x. Caches are [positions,R/2]
// with position_ids (i64 [B,T]), else [B,T,R/2].
HEADWISE_API void rotary_embedding(const ConstTensorView& x, const ConstTensorView& cos_cache,
                                   const ConstTensorView& sin_cache, const ConstTensorView& position_ids,
                                   const TensorView& y, const RotaryAttributes& attributes = {},
                                   const Execution& execution = {});

struct RmsAttributes {
    int axis = -1;  // the first of the normalized axes; below 0 it counts from the end
    double epsilon = 1e-5;
};

// x of any rank >= 1, f32, bf16 or f16 -> y, dense, of the same shape and type; y may be x. `scale`, of any float type,
// broadcasts to x. Statistics are f64 sums, whatever stash_type says.
HEADWISE_API void rms_normalization(const ConstTensorView& x, const ConstTensorView& scale, const TensorView& y,
                                    const RmsAttributes& attributes = {}, const Execution& execution = {});

}  // namespace headwise::onnx
