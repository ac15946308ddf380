// Shapes and choices of one attention layer, and its weights. One value describes any published model's block; a part
// that a model lacks is left out. docs/models.md tells which parts make which family.
#pragma once

#include <cstdint>
#include <optional>

#include <headwise/export.h>
#include <headwise/heads.h>
#include <headwise/mask.h>
#include <headwise/tensor.h>

namespace headwise {

// tau(p) = 1 + scale * ln(1 + floor((p + 1) / floor_scale)), where p counts slots, padding included (Llama 4).
struct Temperature {
    double scale = 0.1;
    double floor_scale = 8192;
};

// T5: bias of t - p by buckets, exact near, logarithmic to max_distance. MhaWeights::relative_bias holds the table.
struct RelativeBias {
    std::int64_t buckets = 32;
    std::int64_t max_distance = 128;
    bool bidirectional =
        true;  // half of the buckets for each sign; else only keys before the query are told apart
};

// The output of head h is multiplied by sigmoid(x W_g + b_g): one number a head, or one for each of its Dv elements.
enum class Gate : std::uint8_t { none, head, element };

// Head h of the first half minus lambda * head h + H/2 (DIFF Transformer): H/2 heads of width Dv go on.
struct HeadDifference {
    double lambda = 0;
};

// A norm of what the heads wrote, before W_O: over each head (extent head) or the whole merged row; then times `factor`.
struct MergedNorm {
    HeadNorm norm{};
    double factor = 1;
};

// Multi-head latent attention (DeepSeek): k and v of all heads come from one latent of kv_rank numbers, and all heads
// share one rotated key of rope_dim numbers. head_dim = nope + rope_dim. The cache keeps kv_rank + rope_dim numbers.
struct Latent {
    std::int64_t q_rank = 0;  // 0: q is projected directly
    std::int64_t kv_rank = 0;
    std::int64_t rope_dim = 0;  // last columns of q and k
    double eps = 1e-6;          // of the two RMS norms
    // absorbed: q goes into the latent space, attention runs at width kv_rank + rope_dim over the latent itself. Same
    // result to rounding; less work where few queries meet a long cache. automatic: by one sequence's T and S.
    enum class Form : std::uint8_t { automatic, naive, absorbed };
    Form form = Form::automatic;
};

// Routed projections (JetMoE): a router picks top_k experts for each token (the lower index wins a tie). Each gives its
// own q for all G heads, H = top_k * G, and takes their outputs back: y = sum gate_e * W_O,e out_e.
struct Routing {
    std::int64_t experts = 0, top_k = 0;
};

// A 0 in a size means "the usual value", filled in by resolve().
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
    double softcap = 0;                // see AttendInputs
    double clip_qkv = 0;               // > 0: q, k and v are clamped to [-c, c] after projection
    std::optional<HeadNorm> qk_norm{};
    std::optional<Rope> rope{};
    std::optional<Temperature> temperature{};
    std::optional<RelativeBias> relative_bias{};
    Gate gate = Gate::none;
    std::optional<HeadDifference> difference{};
    std::optional<MergedNorm> merged_norm{};
    std::optional<Latent> latent{};
    std::optional<Routing> routing{};
    bool zero_key = false;     // one more key and value of zeros that every query sees (add_zero_attn)
    Mask mask{};               // what the model itself hides: causal, window, chunk (tensors belong to a call)
    DType dtype = DType::f32;  // storage of weights, q, k, v and y: f32, bf16 or f16; arithmetic is f32
};

// Every shape rule, checked once: fills the zeros and throws invalid_argument with the rule that is broken.
HEADWISE_API MhaConfig resolve(const MhaConfig& config);

// Weight rows are output features, as torch.nn.Linear stores them. f32, bf16 or f16; only read by the constructor.
struct MhaWeights {
    ConstTensorView q{};                                     // [H*D, E]; with q_rank [H*D, q_rank]
    ConstTensorView k{};                                     // [G*D, key_embed_dim]
    ConstTensorView v{};                                     // [G*Dv, value_embed_dim]
    ConstTensorView o{};                                     // [out_dim, width of the merged row]
    ConstTensorView q_bias{}, k_bias{}, v_bias{}, o_bias{};  // [rows of the weight], each optional

    ConstTensorView q_norm{}, k_norm{};            // as qk_norm says: [D], [heads,D] or the whole row
    ConstTensorView q_norm_bias{}, k_norm_bias{};  // optional
    ConstTensorView sinks{};                       // [H] optional
    ConstTensorView alibi_slopes{};                // [H] optional
    ConstTensorView relative_bias{};               // [buckets, H]
    ConstTensorView gate{}, gate_bias{};           // [H, E] or [H*Dv, E]; the bias optional
    ConstTensorView merged_norm{};                 // [Dv] or [merged row]
    ConstTensorView extra_key{}, extra_value{};    // [G*D], [G*Dv] optional: one more key that every query sees
                                                   // (add_bias_kv); it comes before the zero key

    // latent: instead of k and v
    ConstTensorView q_down{}, q_down_bias{}, q_down_norm{};     // [q_rank, E], [q_rank], [q_rank]
    ConstTensorView kv_down{}, kv_down_bias{}, kv_down_norm{};  // [kv_rank + rope_dim, E], same rows, [kv_rank]
    ConstTensorView kv_up{};                                    // [H * (nope + Dv), kv_rank]: per head k, then v

    // routing: instead of q and o
    ConstTensorView router{};                // [experts, E]
    ConstTensorView expert_q{}, expert_o{};  // [experts, G*D, E], [experts, out_dim, G*Dv]
};

}  // namespace headwise
