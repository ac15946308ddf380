#include "weights/elements.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/check.h"

namespace headwise {

static_assert(std::endian::native == std::endian::little, "safetensors and .npy files are little-endian");

std::optional<std::int64_t> total_bits(std::int64_t bits, std::span<const std::int64_t> sizes) noexcept {
    bool none = false;
    for (const std::int64_t size : sizes) {
        none = none || size == 0;
        if (size != 0 && __builtin_mul_overflow(bits, size, &bits)) return std::nullopt;
    }
    return none ? 0 : bits;
}

void check_booleans(const Tensor& tensor, const std::string& where) {
    if (tensor.dtype() != DType::boolean) return;
    const auto* begin = tensor.data<std::uint8_t>();
    const auto* end = begin + tensor.count();
    const auto* wrong = std::find_if(begin, end, [](std::uint8_t flag) { return flag > 1; });
    if (wrong != end) {
        fail(ErrorCode::bad_data, where, ": element ", wrong - begin, " of a boolean tensor is ", int{*wrong},
             ", neither 0 nor 1");
    }
}

void check_writable(const ConstTensorView& view, const char* where) {
    check(!view.empty(), where, ": no tensor was given");
    check(view.data != nullptr || view.count() == 0, where, ": the view ", view.describe(), " has no memory");
}

void write_elements(OutputFile& file, const ConstTensorView& view) {
    const std::size_t bytes = size_of(view.dtype);
    const bool is_flag = view.dtype == DType::boolean;
    if (view.count() == 0) return;
    if (view.is_dense() && !is_flag) return file.write(view.data, static_cast<std::size_t>(view.count()) * bytes);

    std::array<std::byte, 1 << 14> chunk;
    std::size_t used = 0;
    for_each_element(view, [&](const std::byte* element) {
        if (used + bytes > chunk.size()) {
            file.write(chunk.data(), used);
            used = 0;
        }
        if (is_flag) {
            chunk[used] = std::byte{*element != std::byte{0}};
        } else {
            std::memcpy(&chunk[used], element, bytes);
        }
        used += bytes;
    });
    file.write(chunk.data(), used);
}

}  // namespace headwise
