// The whole block, stages 1 to 5: x -> q,k,v projection -> heads -> rope -> attend -> W_O -> y.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <headwise/attend.h>
#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/mask.h>
#include <headwise/tensor.h>

namespace headwise {

// Rotary positions, half-split pairs (i, i + D/2), angle = position * theta^(-2i/D).
struct Rope {
    double theta = 10000.0;
};

// Shapes and choices of one attention layer. A 0 in a size means "the usual value", filled in by resolve().
struct MhaConfig {
    std::int64_t embed_dim = 0;        // E: width of x
    std::int64_t heads = 0;            // H query heads
    std::int64_t kv_heads = 0;         // G key/value heads, divides H; 0 = H (multi-head), 1 = multi-query
    std::int64_t head_dim = 0;         // D of q and k; 0 = E / H
    std::int64_t value_dim = 0;        // Dv; 0 = D
    std::int64_t key_embed_dim = 0;    // width of the source of k; 0 = E
    std::int64_t value_embed_dim = 0;  // width of the source of v; 0 = E
    std::int64_t out_dim = 0;          // width of y; 0 = E
    std::optional<double> scale{};     // default 1/sqrt(D)
    std::optional<Rope> rope{};
    Mask mask{};               // what the model itself hides: causal, window (tensors belong to a call)
    DType dtype = DType::f32;  // storage of weights, q, k, v and y: f32, bf16 or f16; arithmetic is f32
};

// Every shape rule, checked once: fills the zeros and throws invalid_argument with the rule that is broken.
HEADWISE_API MhaConfig resolve(const MhaConfig& config);

// Weight rows are output features, as torch.nn.Linear stores them. f32, bf16 or f16; only read by the constructor.
struct MhaWeights {
    ConstTensorView q{};                                     // [H*D, E]
    ConstTensorView k{};                                     // [G*D, key_embed_dim]
    ConstTensorView v{};                                     // [G*Dv, value_embed_dim]
    ConstTensorView o{};                                     // [out_dim, H*Dv]
    ConstTensorView q_bias{}, k_bias{}, v_bias{}, o_bias{};  // [rows of the weight], each optional
};

// Per call. Everything may be left out.
struct ForwardOptions {
    ConstTensorView key{};             // [B,S,key_embed_dim] source of k; empty: x (self attention)
    ConstTensorView value{};           // [B,S,value_embed_dim] source of v; empty: the source of k
    Mask mask{};                       // intersected with the config's
    Positions positions{};             // where query rows stand, for the mask
    ConstTensorView rope_positions{};  // i32 or i64 [B,T] (or [T]): rotation of q and k; empty: 0, 1, 2, ...
    TensorView lse{};                  // optional [B,H,T] f32, see AttendOutputs
    Execution execution{};
};

class MultiHeadAttention;
struct Trace;  // <headwise/trace.h>
HEADWISE_API Trace trace(const MultiHeadAttention& block, const ConstTensorView& x, const ForwardOptions& options);

// Weights are packed once, for the ISA in force at construction, and are the only copy. Immutable afterwards:
// forward() may run on several threads at once. Repeated calls of the same shapes allocate nothing.
class HEADWISE_API MultiHeadAttention {
public:
    MultiHeadAttention(const MhaConfig& config, const MhaWeights& weights);
    ~MultiHeadAttention();
    MultiHeadAttention(MultiHeadAttention&&) noexcept;
    MultiHeadAttention& operator=(MultiHeadAttention&&) noexcept;

    const MhaConfig& config() const noexcept;    // resolved
    std::int64_t weight_bytes() const noexcept;  // packed, padding included

    // x [B,T,E] or [T,E], f32, bf16 or f16, innermost stride 1 -> y of the same rank [B,T,out_dim].
    // Throws invalid_argument on shapes that do not fit, before any memory is touched.
    Tensor forward(const ConstTensorView& x, const ForwardOptions& options = {}) const;  // y in config().dtype
    void forward(const ConstTensorView& x, const TensorView& y, const ForwardOptions& options = {}) const;

private:
    friend Trace trace(const MultiHeadAttention&, const ConstTensorView&, const ForwardOptions&);
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace headwise
