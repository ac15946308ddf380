#include "adapters/torch_masks.h"

#include <algorithm>

#include "core/check.h"
#include "core/dtype.h"

namespace headwise {
namespace {

constexpr const char* kWhere = "TorchMultiheadAttention";

bool hides(const ConstTensorView& mask) { return mask.dtype == DType::boolean; }

// Sizes of what two masks [N,H,L,S] with axes of size 1 make together.
std::array<std::int64_t, 4> joined_sizes(const ConstTensorView& a, const ConstTensorView& b) {
    std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
    for (const ConstTensorView* view : {&a, &b}) {
        for (int axis = 0; !view->empty() && axis < 4; ++axis) {
            auto& size = sizes[static_cast<std::size_t>(axis)];
            size = size == 1 ? view->size(axis) : size;
        }
    }
    return sizes;
}

// f(to, a, b) for every element of [N,H,L,S], with the indices of the elements that belong together.
template <class Body>
void for_each(const std::array<std::int64_t, 4>& sizes, const ConstTensorView& a, const ConstTensorView& b,
              Body&& body) {
    const auto index = [](const ConstTensorView& view, const std::array<std::int64_t, 4>& at) {
        std::int64_t sum = 0;
        for (int axis = 0; !view.empty() && axis < 4; ++axis)
            sum += view.size(axis) == 1 ? 0 : at[static_cast<std::size_t>(axis)] * view.stride(axis);
        return sum;
    };
    std::int64_t to = 0;
    for (std::int64_t n = 0; n < sizes[0]; ++n)
        for (std::int64_t h = 0; h < sizes[1]; ++h)
            for (std::int64_t l = 0; l < sizes[2]; ++l)
                for (std::int64_t s = 0; s < sizes[3]; ++s, ++to)
                    body(to, index(a, {n, h, l, s}), index(b, {n, h, l, s}));
}

void check_type(const ConstTensorView& mask, const char* name) {
    check(hides(mask) || is_float(mask.dtype), kWhere, ": ", name, " is ", mask,
          ", expected bool (true = hidden) or a float type (added to the scores)");
}

}  // namespace

TorchMasks::TorchMasks(const TorchShape& shape, bool batched, const TorchMhaOptions& options) : shape_(shape) {
    ConstTensorView padding, attention;
    if (!options.key_padding_mask.empty()) padding = padding_as_scores(options.key_padding_mask, batched);
    if (!options.attn_mask.empty()) attention = attention_as_scores(options.attn_mask, batched);
    const ConstTensorView none;
    hide(hides(padding) ? padding : none, hides(attention) ? attention : none);
    add(hides(padding) ? none : padding, hides(attention) ? none : attention);
}

Mask TorchMasks::mask() const { return {.keep = keep_.view(), .bias = bias_}; }

ConstTensorView TorchMasks::padding_as_scores(const ConstTensorView& mask, bool batched) const {
    check_type(mask, "key_padding_mask");
    const int rank = batched ? 2 : 1;
    check(mask.rank == rank && mask.size(rank - 1) == shape_.S && (!batched || mask.size(0) == shape_.N), kWhere,
          ": key_padding_mask is ", mask, ", expected [", shape_.N, ", ", shape_.S, "], or [", shape_.S,
          "] without a batch");
    return ConstTensorView(mask.data, mask.dtype, {shape_.N, 1, 1, shape_.S},
                           {batched ? mask.stride(0) : 0, 0, 0, mask.stride(rank - 1)});
}

ConstTensorView TorchMasks::attention_as_scores(const ConstTensorView& mask, bool batched) const {
    check_type(mask, "attn_mask");
    const auto [N, H, L, S] = shape_;
    const bool fits = mask.rank == 2
                          ? mask.size(0) == L && mask.size(1) == S
                          : mask.rank == 3 && mask.size(0) == N * H && mask.size(1) == L && mask.size(2) == S;
    check(fits, kWhere, ": attn_mask is ", mask, ", expected [", L, ", ", S, "] or [",
          batched ? "N*H = " : "H = ", N * H, ", ", L, ", ", S, "]");
    if (mask.rank == 2)
        return ConstTensorView(mask.data, mask.dtype, {1, 1, L, S}, {0, 0, mask.stride(0), mask.stride(1)});
    return ConstTensorView(mask.data, mask.dtype, {N, H, L, S},
                           {H * mask.stride(0), mask.stride(0), mask.stride(1), mask.stride(2)});
}

// torch says what is hidden, we say what may be attended.
void TorchMasks::hide(const ConstTensorView& a, const ConstTensorView& b) {
    if (a.empty() && b.empty()) return;
    const std::array<std::int64_t, 4> sizes = joined_sizes(a, b);
    keep_ = Tensor(DType::boolean, std::span<const std::int64_t>(sizes));
    auto* keep = keep_.data<std::uint8_t>();
    const auto hidden = [](const ConstTensorView& view, std::int64_t at) {
        return !view.empty() && static_cast<const std::uint8_t*>(view.data)[at] != 0;
    };
    for_each(sizes, a, b, [&](std::int64_t to, std::int64_t in_a, std::int64_t in_b) {
        keep[to] = !hidden(a, in_a) && !hidden(b, in_b);
    });
}

// One float mask is used where it lies. Two are added in f64, where finite numbers stay finite.
void TorchMasks::add(const ConstTensorView& a, const ConstTensorView& b) {
    if (a.empty() || b.empty()) {
        bias_ = a.empty() ? b : a;
        return;
    }
    const std::array<std::int64_t, 4> sizes = joined_sizes(a, b);
    sum_ = Tensor(DType::f64, std::span<const std::int64_t>(sizes));
    auto* sum = sum_.data<double>();
    for_each(sizes, a, b, [&](std::int64_t to, std::int64_t in_a, std::int64_t in_b) {
        sum[to] = load_f64(a.data, a.dtype, in_a) + load_f64(b.data, b.dtype, in_b);
    });
    bias_ = sum_.view();
}

}  // namespace headwise
