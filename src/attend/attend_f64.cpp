// f64 in, f64 arithmetic: a plain loop with two passes over the keys of a row.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attend/problem.h"
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
          range_(problem.visibility.row(row.b, row.i)),
          scores_(scratch),
          sums_(scratch + problem.S),
          visible_(reinterpret_cast<std::uint8_t*>(sums_ + problem.Dv)) {}

    void run() noexcept {
        score();
        double sum = 0;
        for (std::int64_t t = range_.begin; t < range_.end; ++t) {
            if (!visible_[t]) continue;
            scores_[t] = std::exp(scores_[t] - max_);
            sum += scores_[t];
        }
        std::fill_n(sums_, problem_.Dv, 0.0);
        for (std::int64_t t = range_.begin; t < range_.end; ++t) {
            if (!visible_[t]) continue;
            const auto* v = static_cast<const double*>(head_row(problem_.v, row_.b, t, g_));
            for (std::int64_t c = 0; c < problem_.Dv; ++c) sums_[c] += scores_[t] * v[c];
        }
        void* out = head_row(problem_.out, row_.b, row_.i, row_.h);
        for (std::int64_t c = 0; c < problem_.Dv; ++c) {
            store_f64(out, problem_.out.dtype, c, seen_ == 0 ? 0.0 : sums_[c] / sum);
        }
        store_lse(problem_, row_, seen_ == 0 ? -kInfinity : max_ + std::log(sum));
    }

private:
    // scores_ and visible_ of every key in range_, their maximum and number.
    void score() noexcept {
        const auto* q = static_cast<const double*>(head_row(problem_.q, row_.b, row_.i, row_.h));
        for (std::int64_t t = range_.begin; t < range_.end; ++t) {
            double bias = 0;
            visible_[t] = problem_.visibility.read_f64(row_, t, bias);
            if (!visible_[t]) continue;
            const auto* k = static_cast<const double*>(head_row(problem_.k, row_.b, t, g_));
            double dot = 0;
            for (std::int64_t d = 0; d < problem_.D; ++d) dot += problem_.scale * q[d] * k[d];
            scores_[t] = dot + bias;
            max_ = scores_[t] > max_ ? scores_[t] : max_;
            ++seen_;
        }
    }

    const Problem& problem_;
    const Visibility::Row row_;
    const std::int64_t g_;
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
