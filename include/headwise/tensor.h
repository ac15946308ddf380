// Tensors: strided views over memory that someone else owns, and Tensor, which owns aligned memory.
// Strides count elements, not bytes. Offsets and sizes are 64-bit everywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <headwise/export.h>

namespace headwise {

enum class DType : std::uint8_t { f32, bf16, f16, f64, i32, i64, boolean };

HEADWISE_API std::size_t size_of(DType dtype) noexcept;       // bytes per element
HEADWISE_API std::string_view name_of(DType dtype) noexcept;  // "f32", "bf16", ..., "bool"

inline constexpr int kMaxRank = 8;

// A view: address of element 0, type, sizes and strides. Data is `void` or `const void`.
// A default-made view is empty(): it stands for "not given" wherever a tensor is optional.
template <class Data>
struct BasicView {
    Data* data = nullptr;
    DType dtype = DType::f32;
    int rank = -1;  // -1: no tensor at all; 0: a scalar
    std::array<std::int64_t, kMaxRank> sizes{};
    std::array<std::int64_t, kMaxRank> strides{};

    BasicView() = default;

    // Row-major and dense. Throws invalid_argument if the rank is above kMaxRank or a size is negative.
    HEADWISE_API BasicView(Data* address, DType type, std::span<const std::int64_t> shape);
    BasicView(Data* address, DType type, std::initializer_list<std::int64_t> shape)
        : BasicView(address, type, std::span<const std::int64_t>(shape.begin(), shape.size())) {}

    // Any strides, in elements. Throws invalid_argument if the two lists differ in length.
    HEADWISE_API BasicView(Data* address, DType type, std::span<const std::int64_t> shape,
                           std::span<const std::int64_t> steps);
    BasicView(Data* address, DType type, std::initializer_list<std::int64_t> shape,
              std::initializer_list<std::int64_t> steps)
        : BasicView(address, type, std::span<const std::int64_t>(shape.begin(), shape.size()),
                    std::span<const std::int64_t>(steps.begin(), steps.size())) {}

    // A mutable view is usable wherever a const one is asked for.
    operator BasicView<const Data>() const noexcept
        requires(!std::is_const_v<Data>)
    {
        BasicView<const Data> view;
        view.data = data, view.dtype = dtype, view.rank = rank, view.sizes = sizes, view.strides = strides;
        return view;
    }

    bool empty() const noexcept { return rank < 0; }
    std::int64_t size(int axis) const noexcept { return sizes[static_cast<std::size_t>(axis)]; }
    std::int64_t stride(int axis) const noexcept { return strides[static_cast<std::size_t>(axis)]; }
    HEADWISE_API std::int64_t count() const noexcept;  // number of elements
    HEADWISE_API bool is_dense() const noexcept;       // row-major without gaps
    HEADWISE_API std::string describe() const;         // "f32 [2, 5, 8] strides [40, 8, 1]", for messages

    // Views of the same memory. Throw invalid_argument when an axis or range does not exist.
    HEADWISE_API BasicView swap_axes(int a, int b) const;  // [B,H,T,D] <-> [B,T,H,D]
    HEADWISE_API BasicView slice(int axis, std::int64_t begin, std::int64_t length) const;
    HEADWISE_API BasicView split_axis(int axis, std::int64_t outer,
                                      std::int64_t inner) const;  // n -> [outer, inner]
};

using TensorView = BasicView<void>;
using ConstTensorView = BasicView<const void>;

// Memory for everything headwise allocates for tensors, packed weights and scratch.
// Both functions must be callable from several threads at once; allocate returns null on failure.
struct Allocator {
    void* context = nullptr;
    void* (*allocate)(void* context, std::size_t bytes, std::size_t alignment) = nullptr;
    void (*deallocate)(void* context, void* pointer, std::size_t bytes, std::size_t alignment) = nullptr;
};

// Replaces the process-wide allocator; a default-made Allocator restores the built-in one. Memory is always given
// back to the allocator that it came from, which must live until then: scratch goes back in set_allocator() and
// release_scratch(), not at exit. Call it while no other thread uses headwise.
HEADWISE_API void set_allocator(const Allocator& allocator);

// Frees the scratch memory that headwise keeps between calls (a steady call reuses it and allocates nothing): at
// most 32 blocks, the largest that calls have needed at one time.
HEADWISE_API void release_scratch() noexcept;

// A dense tensor that owns 64-byte aligned memory. Movable (what is left is empty); convert() makes copies.
class HEADWISE_API Tensor {
public:
    Tensor() = default;
    Tensor(Tensor&& other) noexcept;
    Tensor& operator=(Tensor&& other) noexcept;
    // Contents are zero. Throws out_of_memory, or invalid_argument when the sizes overflow 63 bits.
    Tensor(DType dtype, std::span<const std::int64_t> sizes);
    Tensor(DType dtype, std::initializer_list<std::int64_t> sizes)
        : Tensor(dtype, std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}

    TensorView view() noexcept { return view_; }
    ConstTensorView view() const noexcept { return view_; }
    operator TensorView() noexcept { return view_; }
    operator ConstTensorView() const noexcept { return view_; }

    bool empty() const noexcept { return view_.empty(); }
    DType dtype() const noexcept { return view_.dtype; }
    int rank() const noexcept { return view_.rank; }
    std::int64_t size(int axis) const noexcept { return view_.size(axis); }
    std::int64_t count() const noexcept { return view_.count(); }

    // Typed access; the caller names the element type that the dtype stores (bf16 and f16: std::uint16_t).
    template <class T>
    T* data() noexcept {
        return static_cast<T*>(view_.data);
    }
    template <class T>
    const T* data() const noexcept {
        return static_cast<const T*>(view_.data);
    }

private:
    std::shared_ptr<void> storage_;
    TensorView view_;
};

// A dense copy of any view, converted to `dtype` (float types among each other; others only to themselves).
HEADWISE_API Tensor convert(const ConstTensorView& view, DType dtype);

}  // namespace headwise
