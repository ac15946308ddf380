// From the settings of a model to the frequencies and the multiplier of its rotation.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "heads/check.h"
#include "heads/rope.h"

namespace headwise {
namespace {

using Kind = RopeScaling::Kind;

// theta of the scalings that change it; a width of 2 has only f_0 = 1.
double stretched_theta(const Rope& rope, std::int64_t half, std::int64_t longest) noexcept {
    const RopeScaling& s = rope.scaling;
    double by = 1;
    if (s.kind == Kind::dynamic) {
        const double share =
            static_cast<double>(std::max(longest, s.max_position)) / static_cast<double>(s.max_position);
        by = s.factor * share - (s.factor - 1);
    }
    if (s.kind == Kind::dynamic_alpha) by = s.alpha;
    if (by == 1 || half == 1) return rope.theta;
    return rope.theta * std::pow(by, static_cast<double>(half) / static_cast<double>(half - 1));
}

double llama3(const RopeScaling& s, double f) noexcept {
    const double wave = 2 * std::numbers::pi / f, old = static_cast<double>(s.original_max_position);
    if (wave < old / s.high_freq_factor) return f;
    if (wave > old / s.low_freq_factor) return f / s.factor;
    if (s.low_freq_factor == s.high_freq_factor) return f;
    const double share = (old / wave - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
    return (1 - share) * f / s.factor + share * f;
}

// The pairs between which yarn blends: those that turn beta times within the positions of the training.
class YarnRamp {
public:
    YarnRamp() noexcept = default;
    YarnRamp(const Rope& rope, std::int64_t half) noexcept {
        const RopeScaling& s = rope.scaling;
        const double width = static_cast<double>(2 * half), old = static_cast<double>(s.original_max_position);
        const auto pair_of = [&](double turns) {
            return width * std::log(old / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
        };
        low_ = pair_of(s.beta_fast), high_ = pair_of(s.beta_slow);
        if (s.truncate) low_ = std::floor(low_), high_ = std::ceil(high_);
        low_ = std::max(low_, 0.0), high_ = std::min(high_, width - 1);
        if (low_ == high_) high_ += 0.001;
    }
    double operator()(std::int64_t i) const noexcept {
        return std::clamp((static_cast<double>(i) - low_) / (high_ - low_), 0.0, 1.0);
    }

private:
    double low_ = 0, high_ = 1;
};

}  // namespace

void fill_frequencies(const Rope& rope, std::int64_t half, std::int64_t longest, double* to) noexcept {
    const RopeScaling& s = rope.scaling;
    const double theta = stretched_theta(rope, half, longest);
    const YarnRamp ramp = s.kind == Kind::yarn ? YarnRamp(rope, half) : YarnRamp();
    const std::vector<double>& factors = longest > s.original_max_position ? s.long_factor : s.short_factor;
    for (std::int64_t i = 0; i < half; ++i) {
        const auto at = static_cast<std::size_t>(i);
        double f = rope.frequencies.empty() ? std::pow(theta, -static_cast<double>(i) / static_cast<double>(half))
                                            : rope.frequencies[at];
        if (s.kind == Kind::linear) f /= s.factor;
        if (s.kind == Kind::llama3) f = llama3(s, f);
        if (s.kind == Kind::yarn) f = f / s.factor * ramp(i) + f * (1 - ramp(i));
        if (s.kind == Kind::longrope) f /= factors[at];
        to[i] = rope.divisors.empty() ? f : f / rope.divisors[at];
    }
}

double rope_multiplier(const RopeScaling& s) noexcept {
    if (s.attention_factor) return *s.attention_factor;
    if (s.factor <= 1) return 1;
    const double stretch = std::log(s.factor);
    if (s.kind == Kind::longrope) {
        return std::sqrt(1 + stretch / std::log(static_cast<double>(s.original_max_position)));
    }
    if (s.kind != Kind::yarn) return 1;
    const auto m = [&](double scale) { return 0.1 * scale * stretch + 1; };
    const double scale = s.mscale.value_or(0), all = s.mscale_all_dim.value_or(0);  // 0 counts as not set
    return scale != 0 && all != 0 ? m(scale) / m(all) : m(1);
}

RopeFrequencies rope_frequencies(const Rope& rope, std::int64_t head_dim, std::int64_t longest) {
    check_rope(rope, head_dim, "rope_frequencies");
    check(longest >= 0, "rope_frequencies: longest is ", longest, ", expected a number of positions");
    const std::int64_t half = rope_layout(rope, head_dim, "rope_frequencies").half;
    RopeFrequencies numbers{std::vector<double>(static_cast<std::size_t>(half)), rope_multiplier(rope.scaling)};
    fill_frequencies(rope, half, longest, numbers.frequencies.data());
    return numbers;
}

}  // namespace headwise
