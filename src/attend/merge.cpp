// merge(): results of attention over disjoint sets of keys, joined by their lse.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "attend/check_views.h"
#include "attend/problem.h"
#include "core/check_memory.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "kernels/dispatch.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void check_rows(const ConstTensorView& view, const ConstTensorView& out, const char* name) {
    check(view.rank == 4 && std::equal(view.sizes.begin(), view.sizes.begin() + 4, out.sizes.begin()),
          "merge: ", name, " is ", view, " but must be [B,T,H,Dv] like out, which is ", out);
    check(is_float(view.dtype), "merge: ", name, " is ", view, " but must be f32, bf16, f16 or f64");
    check(view.size(3) <= 1 || view.stride(3) == 1, "merge: ", name, " is ", view,
          "; its innermost stride must be 1 (other strides are free)");
    check_memory(view, "merge", name);
}

void check_lse(const ConstTensorView& view, const ConstTensorView& out, const char* name) {
    check(view.rank == 3 && view.size(0) == out.size(0) && view.size(1) == out.size(2) &&
              view.size(2) == out.size(1) && (view.dtype == DType::f32 || view.dtype == DType::f64),
          "merge: ", name, " is ", view, " but must be f32 or f64 [B,H,T] = [", out.size(0), ", ", out.size(2),
          ", ", out.size(1), "]");
    check_memory(view, "merge", name);
}

void check_merge(std::span<const AttendPart> parts, const AttendOutputs& to, const ConstTensorView& sinks) {
    check(to.out.rank == 4, "merge: out is ", to.out, " but must be [B,T,H,Dv]");
    check_rows(to.out, to.out, "out");
    check_distinct_rows(to.out, "merge", "out");
    if (!to.lse.empty()) check_lse(to.lse, to.out, "lse");
    for (const AttendPart& part : parts) {
        check_rows(part.out, to.out, "the out of a part");
        check_lse(part.lse, to.out, "the lse of a part");
    }
    if (sinks.empty()) return;
    check(sinks.rank == 1 && sinks.size(0) == to.out.size(2) && sinks.dtype == DType::f32, "merge: sinks is ",
          sinks, " but must be f32 [H] = [", to.out.size(2), "]");
    check_memory(sinks, "merge", "sinks");
}

// The weights of the parts of one row in `weights`, and the lse of all.
double weigh(std::span<const AttendPart> parts, const Visibility::Row& row, double sink, double* weights) {
    double largest = sink;
    bool some = false;
    for (std::size_t n = 0; n < parts.size(); ++n) {
        const double lse = weights[n] = load_lse(parts[n].lse, row);
        some = some || lse != -kInfinity;
        if (std::isnan(lse) || lse > largest) largest = lse;  // a NaN stays
    }
    if (!some) return sink;                 // no key: the weights do not matter
    double sum = std::exp(sink - largest);  // NaN where the largest is NaN or +inf, and so all weights
    for (std::size_t n = 0; n < parts.size(); ++n) sum += weights[n] = std::exp(weights[n] - largest);
    for (std::size_t n = 0; n < parts.size(); ++n) weights[n] /= sum;
    return largest + std::log(sum);
}

// Joins rows with sums in Real.
template <class Real>
class Merge {
public:
    Merge(std::span<const AttendPart> parts, const AttendOutputs& to, const ConstTensorView& sinks)
        : parts_(parts), to_(to), sinks_(sinks), Dv_(to.out.size(3)) {}

    std::size_t scratch_doubles() const { return parts_.size() + 2 * static_cast<std::size_t>(Dv_); }

    void row(const Visibility::Row& row, double* scratch) const {
        double* const weights = scratch;
        Real* const sums = reinterpret_cast<Real*>(weights + parts_.size());
        auto* const wide = reinterpret_cast<float*>(weights + parts_.size() + Dv_);
        const double sink =
            sinks_.empty() ? -kInfinity : load_f64(sinks_.data, sinks_.dtype, row.h * sinks_.stride(0));
        const double lse = weigh(parts_, row, sink, weights);
        std::fill_n(sums, Dv_, Real(0));
        for (std::size_t n = 0; n < parts_.size(); ++n) {
            if (load_lse(parts_[n].lse, row) != -kInfinity) add(parts_[n].out, row, weights[n], sums, wide);
        }
        store(head_row(to_.out, row.b, row.i, row.h), sums);
        if (to_.lse.empty()) return;
        const std::int64_t at = row.b * to_.lse.stride(0) + row.h * to_.lse.stride(1) + row.i * to_.lse.stride(2);
        store_f64(to_.lse.data, to_.lse.dtype, at, lse);
    }

private:
    void add(const ConstTensorView& out, const Visibility::Row& row, double weight, Real* sums,
             float* wide) const {
        const void* const data = head_row(out, row.b, row.i, row.h);
        const auto add_numbers = [&](const auto* numbers) {
            for (std::int64_t c = 0; c < Dv_; ++c)
                sums[c] += static_cast<Real>(weight) * static_cast<Real>(numbers[c]);
        };
        if (out.dtype == DType::f64) return add_numbers(static_cast<const double*>(data));
        kernels_.rows.widen(wide, data, storage_of(out.dtype), Dv_);
        add_numbers(wide);
    }

    void store(void* out, const Real* sums) const {
        if constexpr (std::is_same_v<Real, float>) {
            if (to_.out.dtype != DType::f64)
                return kernels_.rows.narrow(out, storage_of(to_.out.dtype), sums, Dv_);
        }
        for (std::int64_t c = 0; c < Dv_; ++c) store_f64(out, to_.out.dtype, c, static_cast<double>(sums[c]));
    }

    const KernelTable& kernels_ = kernels();
    const std::span<const AttendPart> parts_;
    const AttendOutputs& to_;
    const ConstTensorView& sinks_;
    const std::int64_t Dv_;
};

template <class Real>
void run(const Merge<Real>& merge, const TensorView& out, const Execution& execution) {
    const std::int64_t B = out.size(0), T = out.size(1), H = out.size(2);
    parallel_for(execution, B * T, [&](std::int64_t token) {
        const Scratch scratch(merge.scratch_doubles() * sizeof(double));
        for (std::int64_t h = 0; h < H; ++h) merge.row({token / T, h, token % T}, scratch.data<double>());
    });
}

}  // namespace

void merge(std::span<const AttendPart> parts, const AttendOutputs& outputs, const ConstTensorView& sinks,
           const Execution& execution) {
    check_merge(parts, outputs, sinks);
    const bool wide = std::any_of(parts.begin(), parts.end(),
                                  [](const AttendPart& part) { return part.out.dtype == DType::f64; });
    Execution chosen = execution;
    constexpr std::int64_t kInlineNumbers = 1 << 15;  // below it, waking a thread costs more than it saves
    if (outputs.out.count() * static_cast<std::int64_t>(parts.size()) < kInlineNumbers) chosen.threads = 1;
    wide ? run(Merge<double>(parts, outputs, sinks), outputs.out, chosen)
         : run(Merge<float>(parts, outputs, sinks), outputs.out, chosen);
}

}  // namespace headwise
