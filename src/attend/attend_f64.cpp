// f64 in, f64 arithmetic: a plain loop with two passes over the keys of a row.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/problem.h"
#include "attend/score_f64.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"

namespace headwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class RowF64 {
public:
    // scratch: S + Dv doubles, then S bytes
    RowF64(const Problem& problem, Visibility::Row row, double* scratch) noexcept
        : problem_(problem),
          row_(row),
          g_(kv_head(row.h, problem.H, problem.G)),
          score_(problem, row),
          range_(score_.keys()),
          scores_(scratch),
          sums_(scratch + problem.S),
          visible_(reinterpret_cast<std::uint8_t*>(sums_ + problem.Dv)) {}

    void run() noexcept {
        score();
        const double sink = problem_.rules.sink(row_.h);
        if (seen_ == 0) return finish(1, sink);
        // A sink is a key that has no value. NaN, and +inf by way of inf - inf, spread from here.
        const double top = sink > max_ ? sink : max_;
        double sum = sink == -kInfinity ? 0.0 : std::exp(sink - top);
        for (std::int64_t t = range_.begin; t < range_.end; ++t) {
            if (!visible_[t]) continue;
            scores_[t] = std::exp(scores_[t] - top);
            sum += scores_[t];
        }
        add_values();
        finish(sum, top + std::log(sum));
    }

private:
    // scores_ and visible_ of every key in range_, their maximum and number.
    void score() noexcept {
        for (std::int64_t t = range_.begin; t < range_.end; ++t) {
            visible_[t] = score_.masked(t, scores_[t]);
            if (!visible_[t]) continue;
            max_ = scores_[t] > max_ ? scores_[t] : max_;
            ++seen_;
        }
    }

    void add_values() noexcept {
        std::fill_n(sums_, problem_.Dv, 0.0);
        for (std::int64_t t = range_.begin; t < range_.end; ++t) {
            if (!visible_[t]) continue;
            const auto* v = static_cast<const double*>(head_row(problem_.v, row_.b, t, g_));
            double weight = scores_[t];
            if (problem_.rules.has_dropout() && !problem_.rules.keeps(row_, t)) weight *= 0;
            for (std::int64_t c = 0; c < problem_.Dv; ++c) sums_[c] += weight * v[c];
        }
    }

    void finish(double sum, double lse) noexcept {
        void* out = head_row(problem_.out, row_.b, row_.i, row_.h);
        const double divisor = sum * problem_.rules.keep_share();
        for (std::int64_t c = 0; c < problem_.Dv; ++c) {
            const double gate = problem_.rules.has_gate() ? problem_.rules.gate(row_, c) : 1.0;
            store_f64(out, problem_.out.dtype, c, seen_ == 0 ? 0.0 : sums_[c] / divisor * gate);
        }
        store_lse(problem_, row_, lse);
    }

    const Problem& problem_;
    const Visibility::Row row_;
    const std::int64_t g_;
    const ScoreF64 score_;
    const KeyRange range_;
    double* scores_;
    double* sums_;
    std::uint8_t* visible_;
    double max_ = -kInfinity;
    std::int64_t seen_ = 0;
};

}  // namespace

void attend_f64(const Problem& problem, const Execution& execution) {
    const std::size_t bytes = static_cast<std::size_t>((problem.S + problem.Dv) * 8 + problem.S);
    parallel_for(execution, problem.B * problem.H, [&](std::int64_t task) {
        const Scratch scratch(bytes);
        for (std::int64_t i = 0; i < problem.T; ++i) {
            RowF64(problem, {task / problem.H, task % problem.H, i}, scratch.data<double>()).run();
        }
    });
}

}  // namespace headwise
