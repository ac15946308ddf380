// The scores of one query row in f64, key by key.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "attend/problem.h"

namespace headwise {

class ScoreF64 {
public:
    ScoreF64(const Problem& problem, Visibility::Row row) noexcept
        : problem_(problem),
          row_(row),
          g_(kv_head(row.h, problem.H, problem.G)),
          q_(static_cast<const double*>(head_row(problem.q, row.b, row.i, row.h))),
          scale_(problem.scale * problem.rules.tau(row.b, row.i)),
          place_(problem.visibility.place(row.b, row.i)),
          spans_(problem.visibility.spans(row.b, row.i)) {}

    KeyRange keys() const noexcept { return spans_.cover(); }

    double raw(std::int64_t t) const noexcept {
        const auto* k = static_cast<const double*>(head_row(problem_.k, row_.b, t, g_));
        double s = 0;
        for (std::int64_t d = 0; d < problem_.D; ++d) s += scale_ * q_[d] * k[d];
        return s;
    }
    double capped(std::int64_t t) const noexcept {
        const double s = raw(t), cap = problem_.rules.softcap;
        return cap > 0 ? cap * std::tanh(s / cap) : s;
    }
    // After the biases; false, and then nothing of the key is read, if the row does not see it.
    bool masked(std::int64_t t, double& s) const noexcept {
        double bias = 0;
        if (!spans_.contains(t) || !problem_.visibility.read_f64(row_, t, bias)) return false;
        if (problem_.rules.has_position_bias()) {
            bias += problem_.rules.position_bias(row_.h, distance_of(t - place_.keys.begin, place_.p));
        }
        s = capped(t) + bias;
        return true;
    }

private:
    static std::int64_t distance_of(std::int64_t t, std::int64_t p) noexcept {
        std::int64_t distance = 0;
        if (!__builtin_sub_overflow(t, p, &distance)) return distance;
        return p < 0 ? std::numeric_limits<std::int64_t>::max() : std::numeric_limits<std::int64_t>::min();
    }

    const Problem& problem_;
    const Visibility::Row row_;
    const std::int64_t g_;
    const double* q_;
    const double scale_;
    const Visibility::Place place_;
    const KeySpans spans_;
};

}  // namespace headwise
