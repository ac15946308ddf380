// Copies of whole tensors between float types, run by run.
#include <cstring>

#include <headwise/tensor.h>

#include "core/check.h"
#include "core/dtype.h"

namespace headwise {
namespace {

// One type per storage form, so that an element's meaning is known without a switch.
struct Bf16 {
    std::uint16_t bits;
};
struct F16 {
    std::uint16_t bits;
};

float decode(float value) noexcept { return value; }
double decode(double value) noexcept { return value; }
float decode(Bf16 value) noexcept { return bf16_to_f32(value.bits); }
float decode(F16 value) noexcept { return f16_to_f32(value.bits); }

void encode(float& to, float value) noexcept { to = value; }
void encode(float& to, double value) noexcept { to = static_cast<float>(value); }
void encode(double& to, double value) noexcept { to = value; }
void encode(Bf16& to, float value) noexcept { to.bits = f32_to_bf16(value); }
void encode(Bf16& to, double value) noexcept { to.bits = f64_to_bf16(value); }
void encode(F16& to, float value) noexcept { to.bits = f32_to_f16(value); }
void encode(F16& to, double value) noexcept { to.bits = f64_to_f16(value); }

// Calls body(element type tag) for a float type.
template <class Body>
void with_float_type(DType dtype, Body&& body) {
    if (dtype == DType::f32) return body(float{});
    if (dtype == DType::f64) return body(double{});
    dtype == DType::bf16 ? body(Bf16{}) : body(F16{});
}

// `count` elements, `stride` apart in the source, to a dense run.
using Run = void (*)(const std::byte* from, std::int64_t stride, std::int64_t count, std::byte* to) noexcept;

template <class From, class To>
void convert_run(const std::byte* from, std::int64_t stride, std::int64_t count, std::byte* to) noexcept {
    const auto* source = reinterpret_cast<const From*>(from);
    auto* target = reinterpret_cast<To*>(to);
    if (stride == 1) {  // its own loop, which compilers turn into vectors
        for (std::int64_t i = 0; i < count; ++i) encode(target[i], decode(source[i]));
    } else {
        for (std::int64_t i = 0; i < count; ++i) encode(target[i], decode(source[i * stride]));
    }
}

// Bits as they are, signalling NaN included.
template <std::size_t kBytes>
void copy_run(const std::byte* from, std::int64_t stride, std::int64_t count, std::byte* to) noexcept {
    constexpr auto kStep = static_cast<std::int64_t>(kBytes);
    if (stride == 1) {
        std::memcpy(to, from, static_cast<std::size_t>(count) * kBytes);
    } else {
        for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * kStep, from + i * stride * kStep, kBytes);
    }
}

Run choose_run(DType from, DType to) {
    if (from == to) {
        const std::size_t bytes = size_of(from);
        return bytes == 8 ? copy_run<8> : bytes == 4 ? copy_run<4> : bytes == 2 ? copy_run<2> : copy_run<1>;
    }
    Run run = nullptr;
    with_float_type(from, [&](auto source) {
        with_float_type(to, [&](auto target) { run = convert_run<decltype(source), decltype(target)>; });
    });
    return run;
}

// Walks the axes in order; the last one is a run.
struct Walk {
    ConstTensorView view;
    Run run;
    std::int64_t from_bytes, to_bytes;  // per element
    std::byte* to;

    void axis(int axis_index, const std::byte* from) {
        if (axis_index >= view.rank - 1) {
            const std::int64_t count = view.rank == 0 ? 1 : view.size(axis_index);
            run(from, view.rank == 0 ? 1 : view.stride(axis_index), count, to);
            to += count * to_bytes;
            return;
        }
        for (std::int64_t i = 0; i < view.size(axis_index); ++i) {
            axis(axis_index + 1, from + i * view.stride(axis_index) * from_bytes);
        }
    }
};

}  // namespace

Tensor convert(const ConstTensorView& view, DType dtype) {
    check(!view.empty(), "convert: no tensor");
    check(view.dtype == dtype || (is_float(view.dtype) && is_float(dtype)), "convert: ", view.dtype, " to ", dtype,
          " is not a conversion between float types");
    Tensor result(dtype, {view.sizes.data(), static_cast<std::size_t>(view.rank)});
    const std::int64_t count = view.count();
    if (count == 0) return result;
    check(view.data != nullptr, "convert: ", view, " without data");
    const auto* from = static_cast<const std::byte*>(view.data);
    const Run run = choose_run(view.dtype, dtype);
    if (view.is_dense()) {
        run(from, 1, count, result.data<std::byte>());
    } else {
        Walk{view, run, static_cast<std::int64_t>(size_of(view.dtype)), static_cast<std::int64_t>(size_of(dtype)),
             result.data<std::byte>()}
            .axis(0, from);
    }
    return result;
}

}  // namespace headwise
