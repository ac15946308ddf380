#include <headwise/tensor.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "core/check.h"
#include "core/storage.h"

namespace headwise {

std::size_t size_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::f32:
            return 4;
        case DType::bf16:
            return 2;
        case DType::f16:
            return 2;
        case DType::f64:
            return 8;
        case DType::i32:
            return 4;
        case DType::i64:
            return 8;
        case DType::boolean:
            return 1;
    }
    return 0;
}

std::string_view name_of(DType dtype) noexcept {
    switch (dtype) {
        case DType::f32:
            return "f32";
        case DType::bf16:
            return "bf16";
        case DType::f16:
            return "f16";
        case DType::f64:
            return "f64";
        case DType::i32:
            return "i32";
        case DType::i64:
            return "i64";
        case DType::boolean:
            return "bool";
    }
    return "?";
}

namespace {

std::string list(std::span<const std::int64_t> values) {
    std::string result = "[";
    for (std::size_t i = 0; i < values.size(); ++i) result += (i == 0 ? "" : ", ") + std::to_string(values[i]);
    return result + "]";
}

}  // namespace

template <class Data>
BasicView<Data>::BasicView(Data* address, DType type, std::span<const std::int64_t> shape)
    : data(address), dtype(type), rank(static_cast<int>(shape.size())) {
    check(shape.size() <= kMaxRank, "view: rank ", shape.size(), " is above the limit of ", kMaxRank);
    std::int64_t stride = 1;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
        check(shape[axis] >= 0, "view: size ", shape[axis], " of axis ", axis, " is negative");
        sizes[axis] = shape[axis];
        strides[axis] = stride;
        if (shape[axis] > 0) stride = checked_multiply(stride, shape[axis], "view");
    }
}

template <class Data>
BasicView<Data>::BasicView(Data* address, DType type, std::span<const std::int64_t> shape,
                           std::span<const std::int64_t> steps)
    : BasicView(address, type, shape) {
    check(shape.size() == steps.size(), "view: ", shape.size(), " sizes but ", steps.size(), " strides");
    std::copy(steps.begin(), steps.end(), strides.begin());
}

// The constructors keep the product of all sizes but zeros within 63 bits; members that were set by hand may not.
template <class Data>
std::int64_t BasicView<Data>::count() const noexcept {
    if (empty() || std::find(sizes.begin(), sizes.begin() + rank, 0) != sizes.begin() + rank) return 0;
    std::int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) {
        if (__builtin_mul_overflow(product, size(axis), &product)) return std::numeric_limits<std::int64_t>::max();
    }
    return product;
}

template <class Data>
bool BasicView<Data>::is_dense() const noexcept {
    if (count() == 0) return true;
    std::int64_t expected = 1;
    for (int axis = rank - 1; axis >= 0; --axis) {
        if (size(axis) != 1 && stride(axis) != expected) return false;
        if (__builtin_mul_overflow(expected, size(axis), &expected)) return false;
    }
    return true;
}

template <class Data>
std::string BasicView<Data>::describe() const {
    if (empty()) return "no tensor";
    const auto n = static_cast<std::size_t>(rank);
    std::string result = std::string(name_of(dtype)) + " " + list({sizes.data(), n});
    if (!is_dense()) result += " strides " + list({strides.data(), n});
    return result;
}

template <class Data>
BasicView<Data> BasicView<Data>::swap_axes(int a, int b) const {
    check(a >= 0 && b >= 0 && a < rank && b < rank, "swap_axes: axes ", a, " and ", b, " of ", *this);
    BasicView view = *this;
    std::swap(view.sizes[static_cast<std::size_t>(a)], view.sizes[static_cast<std::size_t>(b)]);
    std::swap(view.strides[static_cast<std::size_t>(a)], view.strides[static_cast<std::size_t>(b)]);
    return view;
}

template <class Data>
BasicView<Data> BasicView<Data>::slice(int axis, std::int64_t begin, std::int64_t length) const {
    check(axis >= 0 && axis < rank, "slice: axis ", axis, " of ", *this);
    check(begin >= 0 && length >= 0 && begin <= size(axis) && length <= size(axis) - begin, "slice: ", length,
          " elements from ", begin, " on axis ", axis, " of ", *this);
    BasicView view = *this;
    view.sizes[static_cast<std::size_t>(axis)] = length;
    if (length > 0 && data != nullptr) {
        using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
        std::int64_t offset = 0;
        check(!__builtin_mul_overflow(begin, stride(axis), &offset) &&
                  !__builtin_mul_overflow(offset, static_cast<std::int64_t>(size_of(dtype)), &offset),
              "slice: element ", begin, " on axis ", axis, " of ", *this, " lies outside of any memory");
        view.data = static_cast<Byte*>(data) + offset;
    }
    return view;
}

template <class Data>
BasicView<Data> BasicView<Data>::split_axis(int axis, std::int64_t outer, std::int64_t inner) const {
    check(axis >= 0 && axis < rank && rank < kMaxRank, "split_axis: axis ", axis, " of ", *this);
    check(outer >= 0 && inner >= 0 && checked_multiply(outer, inner, "split_axis") == size(axis),
          "split_axis: ", outer, " * ", inner, " is not the size of axis ", axis, " of ", *this);
    BasicView view = *this;
    const auto at = static_cast<std::size_t>(axis);
    for (auto i = static_cast<std::size_t>(rank); i > at + 1; --i) {
        view.sizes[i] = sizes[i - 1];
        view.strides[i] = strides[i - 1];
    }
    view.rank = rank + 1;
    view.sizes[at] = outer;
    view.sizes[at + 1] = inner;
    check(!__builtin_mul_overflow(stride(axis), inner, &view.strides[at]), "split_axis: ", inner,
          " steps on axis ", axis, " of ", *this, " lead outside of any memory");
    view.strides[at + 1] = stride(axis);
    return view;
}

template struct BasicView<void>;
template struct BasicView<const void>;

Tensor::Tensor(DType dtype, std::span<const std::int64_t> sizes) : view_(nullptr, dtype, sizes) {
    const auto bytes = static_cast<std::size_t>(
        checked_multiply(view_.count(), static_cast<std::int64_t>(size_of(dtype)), "tensor"));
    storage_ = allocate(bytes);
    std::memset(storage_.get(), 0, bytes);
    view_.data = storage_.get();
}

Tensor::Tensor(Tensor&& other) noexcept
    : storage_(std::move(other.storage_)), view_(std::exchange(other.view_, {})) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
    storage_ = std::move(other.storage_);
    view_ = std::exchange(other.view_, {});
    return *this;
}

}  // namespace headwise
