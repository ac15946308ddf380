#include "weights/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "core/check.h"
#include "weights/elements.h"
#include "weights/gguf_cursor.h"
#include "weights/quote.h"

namespace headwise {
namespace {

constexpr std::uint64_t kDefaultAlignment = 32;
constexpr const char* kAlignmentKey = "general.alignment";

// Types of metadata values, by their codes in the file. Text and arrays have no fixed size.
enum ValueCode : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, text_code, array_code, u64, i64, f64 };
constexpr int kValueBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::int64_t kLeastString = 8, kLeastArray = 12;  // bytes of an empty one

std::string list(const std::vector<std::int64_t>& values) {
    std::string result = "[";
    for (const std::int64_t value : values) result += (result.size() > 1 ? ", " : "") + std::to_string(value);
    return result + "]";
}

class Reader {
public:
    Reader(const InputFile& file, const FileLimits& limits) : file_(file), limits_(limits), in_(file, limits) {}

    GgufHeader read() {
        read_version();
        const std::int64_t tensors = in_.count(1, "tensors");
        check_limit(tensors, limits_.tensors, "tensors", "tensors");
        const std::int64_t keys = in_.count(1, "metadata keys");
        check_limit(keys, limits_.gguf_keys, "metadata keys", "gguf_keys");
        for (std::int64_t n = 0; n < keys; ++n) read_key(n);
        const std::int64_t alignment = read_alignment();
        for (std::int64_t n = 0; n < tensors; ++n) read_tensor(n, alignment);
        header_.data_begin = (in_.at() + alignment - 1) / alignment * alignment;
        check_overlap();
        return std::move(header_);
    }

private:
    void read_version();
    void check_limit(std::int64_t count, std::int64_t limit, const char* what, const char* limit_name) const;
    void read_key(std::int64_t number);
    std::uint32_t read_value_code();
    GgufValue read_value(std::uint32_t code, std::int64_t depth);
    GgufValue read_scalar(std::uint32_t code);
    GgufValue read_array(std::int64_t depth);
    std::int64_t read_alignment() const;
    void read_tensor(std::int64_t number, std::int64_t alignment);
    std::vector<std::int64_t> read_sizes();
    std::int64_t byte_count(const GgufEntry& entry) const;
    void check_overlap() const;

    const InputFile& file_;
    const FileLimits& limits_;
    GgufCursor in_;
    GgufHeader header_;
};

void Reader::read_version() {
    char magic[sizeof kGgufMagic];
    for (char& letter : magic) letter = static_cast<char>(in_.unsigned_number(1));
    if (std::memcmp(magic, kGgufMagic, sizeof magic) != 0) {
        fail(ErrorCode::bad_data, file_.path(), ": does not begin with 'GGUF'; it is no GGUF file");
    }
    const std::uint64_t version = in_.unsigned_number(4);
    if ((version & 0xffff) == 0 && version != 0) {
        fail(ErrorCode::unsupported, file_.path(), ": a big-endian GGUF file; headwise reads little-endian ones");
    }
    if (version != 2 && version != 3) {
        fail(ErrorCode::unsupported, file_.path(), ": GGUF version ", version,
             "; headwise reads versions 2 and 3");
    }
    header_.version = static_cast<std::int64_t>(version);
}

void Reader::check_limit(std::int64_t count, std::int64_t limit, const char* what, const char* limit_name) const {
    if (count > limit) {
        in_.bad(count, " ", what, " are over the limit of ", limit, " (FileLimits::", limit_name, ")");
    }
}

// ---- metadata ------------------------------------------------------------------------------------------------------

void Reader::read_key(std::int64_t number) {
    in_.enter(text("metadata key ", number));
    std::string name = in_.string(limits_.name_bytes, "name_bytes");
    in_.enter("metadata key " + quote(name));
    if (header_.metadata.contains(name)) in_.bad("appears twice");
    GgufValue value = read_value(read_value_code(), 0);
    header_.metadata.emplace(std::move(name), std::move(value));
}

std::uint32_t Reader::read_value_code() {
    const std::uint64_t code = in_.unsigned_number(4);
    if (code >= std::size(kValueBytes)) in_.bad("the format has no value type ", code);
    return static_cast<std::uint32_t>(code);
}

GgufValue Reader::read_value(std::uint32_t code, std::int64_t depth) {
    if (code == text_code) return {.kind = GgufValue::Kind::string, .text = in_.string(-1, "")};
    return code == array_code ? read_array(depth) : read_scalar(code);
}

GgufValue Reader::read_scalar(std::uint32_t code) {
    const std::uint64_t bits = in_.unsigned_number(kValueBytes[code]);
    const auto whole = [](std::int64_t value) {
        return GgufValue{.kind = GgufValue::Kind::integer, .whole = value, .real = static_cast<double>(value)};
    };
    switch (code) {
        case boolean:
            if (bits > 1) in_.bad("a boolean is ", bits, ", neither 0 nor 1");
            return {.kind = GgufValue::Kind::boolean, .whole = bits != 0, .real = bits != 0 ? 1.0 : 0.0};
        case i8:
            return whole(static_cast<std::int8_t>(bits));
        case i16:
            return whole(static_cast<std::int16_t>(bits));
        case i32:
            return whole(static_cast<std::int32_t>(bits));
        case f32:
            return {.kind = GgufValue::Kind::number,
                    .real = std::bit_cast<float>(static_cast<std::uint32_t>(bits))};
        case f64:
            return {.kind = GgufValue::Kind::number, .real = std::bit_cast<double>(bits)};
        case u64:
            if (bits >> 63 != 0) return {.kind = GgufValue::Kind::number, .real = static_cast<double>(bits)};
            return whole(static_cast<std::int64_t>(bits));
        default:
            return whole(static_cast<std::int64_t>(bits));
    }
}

GgufValue Reader::read_array(std::int64_t depth) {
    if (depth >= limits_.json_depth) {
        in_.bad("arrays are nested deeper than the limit of ", limits_.json_depth, " (FileLimits::json_depth)");
    }
    const std::uint32_t code = read_value_code();
    const int bytes = kValueBytes[code];
    const std::int64_t least = code == text_code ? kLeastString : code == array_code ? kLeastArray : bytes;
    GgufValue array{.kind = GgufValue::Kind::array, .count = in_.count(least, "elements of an array")};
    if (code == text_code) {
        for (std::int64_t n = 0; n < array.count; ++n) in_.skip_string();
    } else if (code == array_code) {
        for (std::int64_t n = 0; n < array.count; ++n) read_array(depth + 1);
    } else if (array.count > kKeptItems || depth > 0) {
        in_.skip(array.count * bytes);
    } else {
        array.items.reserve(static_cast<std::size_t>(array.count));
        for (std::int64_t n = 0; n < array.count; ++n) array.items.push_back(read_scalar(code));
    }
    return array;
}

std::int64_t Reader::read_alignment() const {
    const auto found = header_.metadata.find(kAlignmentKey);
    if (found == header_.metadata.end()) return kDefaultAlignment;
    const GgufValue& value = found->second;
    constexpr std::int64_t kLargest = std::int64_t{1} << 31;
    if (value.kind != GgufValue::Kind::integer || value.whole < 1 || value.whole > kLargest ||
        !std::has_single_bit(static_cast<std::uint64_t>(value.whole))) {
        fail(ErrorCode::bad_data, file_.path(), ": metadata key '", kAlignmentKey, "' is ",
             value.kind == GgufValue::Kind::integer ? std::to_string(value.whole) : describe(value.kind),
             ", expected a power of two");
    }
    return value.whole;
}

// ---- tensors -------------------------------------------------------------------------------------------------------

void Reader::read_tensor(std::int64_t number, std::int64_t alignment) {
    in_.enter(text("tensor ", number));
    std::string name = in_.string(limits_.name_bytes, "name_bytes");
    in_.enter("tensor " + quote(name));
    if (header_.tensors.contains(name)) in_.bad("appears twice");

    GgufEntry entry;
    entry.sizes = read_sizes();
    const auto code = static_cast<std::uint32_t>(in_.unsigned_number(4));
    entry.type = find_gguf_type(code);
    if (entry.type == nullptr) {
        fail(ErrorCode::unsupported, file_.path(), ": tensor ", quote(name), " has the element type ", code,
             ", which headwise does not know");
    }
    const std::uint64_t offset = in_.unsigned_number(8);
    const std::int64_t bytes = byte_count(entry);
    if (offset % static_cast<std::uint64_t>(alignment) != 0) {
        in_.bad("its data begins at ", offset, ", which is no multiple of the alignment ", alignment);
    }
    if (offset > static_cast<std::uint64_t>(file_.size()) ||
        bytes > file_.size() - static_cast<std::int64_t>(offset)) {
        in_.bad("its ", bytes, " bytes at ", offset, " of the data end beyond the file of ", file_.size(),
                " bytes; it was cut short or its header lies");
    }
    entry.begin = static_cast<std::int64_t>(offset);
    entry.end = entry.begin + bytes;
    header_.tensors.emplace(std::move(name), std::move(entry));
}

std::vector<std::int64_t> Reader::read_sizes() {
    const std::uint64_t rank = in_.unsigned_number(4);
    if (rank > kMaxRank) in_.bad(rank, " dimensions; headwise has at most ", kMaxRank);
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(rank));
    for (std::size_t axis = sizes.size(); axis-- > 0;) {
        const std::uint64_t size = in_.unsigned_number(8);
        if (size >> 63 != 0) in_.bad("a dimension of ", size, " is larger than any memory");
        sizes[axis] = static_cast<std::int64_t>(size);
    }
    return sizes;
}

// Rows are a whole number of blocks each.
std::int64_t Reader::byte_count(const GgufEntry& entry) const {
    const GgufType& type = *entry.type;
    const std::int64_t row = entry.sizes.empty() ? 1 : entry.sizes.back();
    if (row % type.block_elements != 0) {
        in_.bad(type.name, " ", list(entry.sizes), ": rows of ", row,
                " elements are no whole number of blocks of ", type.block_elements);
    }
    std::vector<std::int64_t> sizes = entry.sizes;
    if (!sizes.empty()) sizes.back() /= type.block_elements;
    const auto bits = total_bits(8 * type.block_bytes, sizes);
    // Elements take more memory when they are decoded than blocks do in the file.
    const auto decoded_bits = total_bits(8 * sizeof(double), entry.sizes);
    if (!bits || !decoded_bits) in_.bad(type.name, " ", list(entry.sizes), " is larger than any memory");
    return *bits / 8;
}

// Padding between tensors is allowed, sharing bytes is not.
void Reader::check_overlap() const {
    using Item = std::pair<const std::string, GgufEntry>;
    std::vector<const Item*> order;
    order.reserve(header_.tensors.size());
    for (const Item& item : header_.tensors) {
        if (item.second.end > item.second.begin) order.push_back(&item);
    }
    std::sort(order.begin(), order.end(),
              [](const Item* a, const Item* b) { return a->second.begin < b->second.begin; });
    const Item* before = nullptr;
    for (const Item* item : order) {
        const auto& [name, entry] = *item;
        if (before != nullptr && entry.begin < before->second.end) {
            fail(ErrorCode::bad_data, file_.path(), ": tensor ", quote(name), " begins at byte ", entry.begin,
                 " of the data, inside tensor ", quote(before->first), ", which ends at ", before->second.end);
        }
        before = item;
    }
    if (before != nullptr && before->second.end > file_.size() - header_.data_begin) {
        fail(ErrorCode::bad_data, file_.path(), ": tensor ", quote(before->first), " ends at byte ",
             before->second.end, " of the data, but the file holds only ",
             std::max<std::int64_t>(file_.size() - header_.data_begin, 0),
             "; it was cut short or its header lies");
    }
}

}  // namespace

const char* describe(GgufValue::Kind kind) noexcept {
    switch (kind) {
        case GgufValue::Kind::boolean:
            return "a boolean";
        case GgufValue::Kind::integer:
            return "a whole number";
        case GgufValue::Kind::number:
            return "a number";
        case GgufValue::Kind::string:
            return "a string";
        case GgufValue::Kind::array:
            return "an array";
    }
    return "?";
}

GgufHeader read_gguf_header(const InputFile& file, const FileLimits& limits) {
    return Reader(file, limits).read();
}

}  // namespace headwise
