#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include <headwise/weights.h>

#include "core/check.h"
#include "weights/elements.h"
#include "weights/file.h"
#include "weights/npy_header.h"

namespace headwise {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kPrelude = 8;  // magic, two bytes of version

struct NpyType {
    std::string_view name;  // as NumPy writes it in "descr"
    DType dtype;
};
constexpr std::array kNpyTypes = {NpyType{"<f4", DType::f32}, NpyType{"<f2", DType::f16},
                                  NpyType{"<f8", DType::f64}, NpyType{"<i4", DType::i32},
                                  NpyType{"<i8", DType::i64}, NpyType{"|b1", DType::boolean}};

struct OpenedNpy {
    NpyHeader header;
    std::int64_t data_begin;
};

OpenedNpy read_header(const InputFile& file, const FileLimits& limits) {
    const std::string& path = file.path();
    std::array<char, kPrelude + 4> start{};
    const std::int64_t known = std::min<std::int64_t>(file.size(), std::ssize(start));
    file.read(0, start.data(), known);
    if (known < kPrelude + 2 || std::string_view(start.data(), kMagic.size()) != kMagic) {
        fail(ErrorCode::bad_data, path, ": not a .npy file: it does not begin with \\x93NUMPY and a version");
    }
    const int version = start[6];
    if (version < 1 || version > 3) {
        fail(ErrorCode::unsupported, path, ": .npy version ", version, "; headwise reads 1, 2 and 3");
    }
    const int length_bytes = version == 1 ? 2 : 4;
    const std::int64_t header_begin = kPrelude + length_bytes;
    std::int64_t length = 0;
    for (int i = length_bytes; i-- > 0;) {
        length = length << 8 | static_cast<unsigned char>(start[static_cast<std::size_t>(kPrelude + i)]);
    }
    if (length > file.size() - header_begin) {
        fail(ErrorCode::bad_data, path, ": the header is said to have ", length, " bytes, but only ",
             std::max<std::int64_t>(file.size() - header_begin, 0), " follow; the file was cut short");
    }
    if (length > limits.header_bytes) {
        fail(ErrorCode::bad_data, path, ": a header of ", length, " bytes is over the limit of ",
             limits.header_bytes, " (FileLimits::header_bytes)");
    }
    std::string text(static_cast<std::size_t>(length), '\0');
    file.read(header_begin, text.data(), length);
    return {parse_npy_header(text, path), header_begin + length};
}

DType dtype_of(const NpyHeader& header, const std::string& path) {
    for (const NpyType& type : kNpyTypes) {
        if (header.descr == type.name) return type.dtype;
    }
    fail(ErrorCode::unsupported, path, ": element type '", header.descr,
         "'; headwise reads <f2, <f4, <f8, <i4, <i8 and |b1 (convert with NumPy's astype)");
}

// A column-major array is the row-major array of the reversed shape, seen with its axes reversed.
Tensor from_fortran_order(const Tensor& stored) {
    const ConstTensorView from = stored.view();
    ConstTensorView reversed = from;
    for (int axis = 0; axis < from.rank; ++axis) {
        const auto at = static_cast<std::size_t>(axis), other = static_cast<std::size_t>(from.rank - 1 - axis);
        reversed.sizes[at] = from.sizes[other];
        reversed.strides[at] = from.strides[other];
    }
    Tensor result(from.dtype, {reversed.sizes.data(), static_cast<std::size_t>(from.rank)});
    const std::size_t bytes = size_of(from.dtype);
    auto* to = result.data<std::byte>();
    for_each_element(reversed, [&](const std::byte* element) {
        std::memcpy(to, element, bytes);
        to += bytes;
    });
    return result;
}

}  // namespace

Tensor load_npy(const std::string& path, const FileLimits& limits) {
    const InputFile file(path);
    const OpenedNpy opened = read_header(file, limits);
    const NpyHeader& header = opened.header;
    const DType dtype = dtype_of(header, path);

    const auto bits = total_bits(static_cast<std::int64_t>(size_of(dtype)) * 8, header.shape);
    const std::int64_t stored = file.size() - opened.data_begin;
    if (!bits || *bits / 8 != stored) {
        fail(ErrorCode::bad_data, path, ": shape and element type ask for ",
             bits ? text(*bits / 8, " bytes") : std::string("more bytes than any memory has"), ", but ", stored,
             " follow the header");
    }
    std::vector<std::int64_t> shape = header.shape;
    if (header.fortran_order) std::reverse(shape.begin(), shape.end());
    Tensor tensor(dtype, shape);
    file.read(opened.data_begin, tensor.view().data, stored);
    check_booleans(tensor, path);
    return header.fortran_order ? from_fortran_order(tensor) : std::move(tensor);
}

void save_npy(const std::string& path, const ConstTensorView& tensor) {
    check_writable(tensor, "save_npy");
    if (tensor.dtype == DType::bf16) return save_npy(path, convert(tensor, DType::f32));  // NumPy has no bf16
    const auto type = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                   [&](const NpyType& candidate) { return candidate.dtype == tensor.dtype; });
    std::string header = text("{'descr': '", type->name, "', 'fortran_order': False, 'shape': (");
    for (int axis = 0; axis < tensor.rank; ++axis)
        header += text(tensor.size(axis), tensor.rank == 1 ? "," : ", ");
    if (tensor.rank > 1) header.resize(header.size() - 2);
    header += "), }";

    constexpr std::size_t kBefore = kPrelude + 2;
    const std::size_t end = (kBefore + header.size() + 1 + 63) / 64 * 64;  // NumPy aligns the data to 64 bytes
    header.resize(end - kBefore - 1, ' ');
    header += '\n';

    OutputFile file(path);
    file.write(kMagic);
    const std::array<char, 4> tail = {1, 0, static_cast<char>(header.size() & 255),
                                      static_cast<char>(header.size() >> 8)};
    file.write(tail.data(), tail.size());
    file.write(header);
    write_elements(file, tensor);
    file.commit();
}

}  // namespace headwise
