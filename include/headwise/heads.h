// Stage 2 alone: rotary positions and the normalisation of query and key heads. docs/semantics.md has the formulas.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/tensor.h>

namespace headwise {

// How the frequencies f_i = theta^(-2i/R) of a model are stretched beyond its training length. Fields are those of
// Hugging Face's rope_parameters; each kind reads the ones named beside it.
struct RopeScaling {
    enum class Kind : std::uint8_t {
        none,
        linear,         // factor
        dynamic,        // factor, max_position; depends on the longest position of a call
        dynamic_alpha,  // alpha
        llama3,         // factor, original_max_position, low_freq_factor, high_freq_factor
        yarn,           // factor, original_max_position, beta_fast, beta_slow, truncate, mscale, mscale_all_dim
        longrope,  // factor, original_max_position, short_factor, long_factor; depends on the longest position
    };
    Kind kind = Kind::none;
    double factor = 1, alpha = 1;
    std::int64_t max_position = 0, original_max_position = 0;
    double low_freq_factor = 1, high_freq_factor = 4;
    double beta_fast = 32, beta_slow = 1;
    bool truncate = true;
    std::optional<double> mscale{}, mscale_all_dim{};
    std::optional<double> attention_factor{};  // multiplies cos and sin; default: what the kind prescribes
    std::vector<double> short_factor{}, long_factor{};  // R/2 divisors each
};

// Turns pairs of columns offset .. offset + width - 1 of each head by position * f_i; the others pass through.
struct Rope {
    enum class Pairs : std::uint8_t {
        half_split,   // (i, i + R/2): Hugging Face's llama
        interleaved,  // (2i, 2i + 1): Llama 4, GPT-J
    };
    double theta = 10000.0;
    Pairs pairs = Pairs::half_split;
    std::int64_t width = 0;   // R, even; 0 = the whole head from offset on
    std::int64_t offset = 0;  // first rotated column
    bool inverse = false;     // by -position * f_i
    RopeScaling scaling{};
    std::vector<double> frequencies{};  // R/2 explicit f_i instead of theta's
    std::vector<double> divisors{};     // R/2: f_i / divisors[i]; GGUF's rope_freqs
};

// Angles by tables instead of a formula (multi-axis rope of vision models): f32, bf16 or f16
struct RopeTables {
    ConstTensorView cos{},
        sin{};  // [B,T,R/2] or [T,R/2]: of the tokens themselves; with positions: [P,R/2], by position
};

// x [B,T,N,D] f32, bf16 or f16, innermost stride 1, in place. `positions`: i32 or i64 [B,T] or [T]; empty: 0, 1, 2, ...
// `longest` is the number of positions that dynamic and longrope scaling reckon with; 0: largest position + 1.
// Angles come from f64. Throws invalid_argument before x is touched.
HEADWISE_API void rotate(const TensorView& x, const Rope& rope, const ConstTensorView& positions = {},
                         std::int64_t longest = 0, const Execution& execution = {});
HEADWISE_API void rotate(const TensorView& x, const Rope& rope, const RopeTables& tables,
                         const ConstTensorView& positions = {}, const Execution& execution = {});

// The R/2 frequencies and the multiplier of cos and sin that rotate() uses for a head of width D.
struct RopeFrequencies {
    std::vector<double> frequencies;
    double multiplier = 1;
};
HEADWISE_API RopeFrequencies rope_frequencies(const Rope& rope, std::int64_t head_dim, std::int64_t longest = 0);

// x / sqrt(mean(x^2) + eps), or (x - mean) / sqrt(variance + eps); times the weight, plus the bias.
struct HeadNorm {
    enum class Kind : std::uint8_t { rms, layer_norm };
    enum class Extent : std::uint8_t { head, row };  // statistics over D, or over all heads of a token
    enum class Weight : std::uint8_t { none, w, one_plus_w };
    Kind kind = Kind::rms;
    Extent extent = Extent::head;
    Weight weight = Weight::w;
    double eps = 1e-6;
    bool after_rope = false;  // only read by the block
};

// x [B,T,N,D] in place, as rotate(). weight and bias: any float type, [D] or [N,D] (one for each head) or [N*D]; the bias
// may be empty, the weight is empty exactly where norm.weight is none. Statistics in f32 with f64 sums.
HEADWISE_API void normalize(const TensorView& x, const HeadNorm& norm, const ConstTensorView& weight,
                            const ConstTensorView& bias = {}, const Execution& execution = {});

}  // namespace headwise
