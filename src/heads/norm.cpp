#include "heads/norm.h"

#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "core/storage.h"
#include "heads/check.h"
#include "heads/tokens.h"
#include "kernels/dispatch.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

// [D], [N,D] or [N*D] in any float type, plus `plus`, dense in f32.
void fill_factors(const ConstTensorView& view, double plus, float* to) {
    const std::int64_t columns = view.size(view.rank - 1), rows = view.rank == 2 ? view.size(0) : 1;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
        const std::int64_t at =
            i / columns * view.stride(0) * (view.rank - 1) + i % columns * view.stride(view.rank - 1);
        to[i] = static_cast<float>(plus + load_f64(view.data, view.dtype, at));
    }
}

std::size_t factor_bytes(const ConstTensorView& weight, const ConstTensorView& bias) {
    const std::int64_t count = (weight.empty() ? 0 : weight.count()) + (bias.empty() ? 0 : bias.count());
    return static_cast<std::size_t>(count) * sizeof(float);
}

NormFactors make_factors(const HeadNorm& norm, const ConstTensorView& weight, const ConstTensorView& bias,
                         std::int64_t head_dim, float* memory) {
    NormFactors factors;
    if (!weight.empty()) {
        fill_factors(weight, norm.weight == HeadNorm::Weight::one_plus_w ? 1 : 0, memory);
        factors.weight = memory;
        factors.weight_step = weight.count() == head_dim ? 0 : head_dim;
        memory += weight.count();
    }
    if (!bias.empty()) {
        fill_factors(bias, 0, memory);
        factors.bias = memory;
        factors.bias_step = bias.count() == head_dim ? 0 : head_dim;
    }
    return factors;
}

// Some heads of one token, whose numbers share their statistics.
class Span {
public:
    Span(const RowKernels& rows, const TensorView& heads, std::byte* first, std::int64_t count) noexcept
        : rows_(rows),
          first_(first),
          count_(count),
          D_(heads.size(3)),
          step_(heads.stride(2) * static_cast<std::int64_t>(size_of(heads.dtype))),
          storage_(storage_of(heads.dtype)) {}

    // `n` is the number of the first head in `factors`.
    void normalize(const HeadNorm& norm, const NormFactors& factors, std::int64_t n) const noexcept {
        const auto numbers = static_cast<double>(count_ * D_);
        NormRow row;
        if (norm.kind == HeadNorm::Kind::layer_norm) {
            double sum = 0;
            for (std::int64_t i = 0; i < count_; ++i) sum += rows_.sum(head(i), storage_, D_);
            row.mean = sum / numbers;
        }
        double squares = 0;
        for (std::int64_t i = 0; i < count_; ++i) squares += rows_.sum_squares(head(i), storage_, D_, row.mean);
        row.factor = static_cast<float>(1 / std::sqrt(squares / numbers + norm.eps));
        for (std::int64_t i = 0; i < count_; ++i) {
            if (factors.weight != nullptr) row.weight = factors.weight + (n + i) * factors.weight_step;
            if (factors.bias != nullptr) row.bias = factors.bias + (n + i) * factors.bias_step;
            rows_.normalize(head(i), storage_, D_, row);
        }
    }

private:
    std::byte* head(std::int64_t i) const noexcept { return first_ + i * step_; }

    const RowKernels& rows_;
    std::byte* const first_;
    const std::int64_t count_, D_, step_;
    const Storage storage_;
};

}  // namespace

Normalization::Normalization(const HeadNorm& norm, const ConstTensorView& weight, const ConstTensorView& bias,
                             std::int64_t heads, std::int64_t head_dim, const char* where)
    : norm_(norm) {
    check_norm(norm, weight, bias, heads, head_dim, where);
    memory_ = allocate(factor_bytes(weight, bias));
    factors_ = make_factors(norm, weight, bias, head_dim, static_cast<float*>(memory_.get()));
}

void normalize(const KernelTable& kernels, const TensorView& heads, const HeadNorm& norm,
               const NormFactors& factors, const Execution& execution) {
    const std::int64_t N = heads.size(2);
    const std::int64_t together = norm.extent == HeadNorm::Extent::row ? N : 1;
    const auto element = static_cast<std::int64_t>(size_of(heads.dtype));
    for_each_token(
        heads.size(0), heads.size(1), N * heads.size(3), execution, [&](std::int64_t b, std::int64_t t) {
            auto* token =
                static_cast<std::byte*>(heads.data) + (b * heads.stride(0) + t * heads.stride(1)) * element;
            for (std::int64_t n = 0; n < N; n += together) {
                Span(kernels.rows, heads, token + n * heads.stride(2) * element, together)
                    .normalize(norm, factors, n);
            }
        });
}

void normalize(const TensorView& x, const HeadNorm& norm, const ConstTensorView& weight,
               const ConstTensorView& bias, const Execution& execution) {
    check_heads(x, "normalize");
    check_norm(norm, weight, bias, x.size(2), x.size(3), "normalize");
    const Scratch memory(factor_bytes(weight, bias));
    const NormFactors factors = make_factors(norm, weight, bias, x.size(3), memory.data<float>());
    normalize(kernels(), x, norm, factors, execution);
}

}  // namespace headwise
