// A second reader of the format, independent of src/weights: it trusts nothing it has not looked at, understands only
// the plain JSON that writers make, and is short enough to check by eye.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headwise::testing_support {

struct SimpleTensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
    std::size_t begin = 0, end = 0;
};

struct SimpleFile {
    std::size_t header_bytes = 0;
    std::map<std::string, SimpleTensor> tensors;
    std::map<std::string, std::string> metadata;
};

// Throws std::runtime_error for every file that the format forbids, and for JSON beyond what it understands: escapes
// other than \" and \\, and white space other than blanks.
class SimpleReader {
public:
    explicit SimpleReader(std::string_view file) : file_(file) {}

    SimpleFile read() {
        SimpleFile result;
        if (file_.size() < 8) bad("too short");
        std::uint64_t length = 0;
        for (std::size_t i = 0; i < 8; ++i) {
            length += static_cast<std::uint64_t>(static_cast<unsigned char>(file_[i])) << (8 * i);
        }
        if (length > file_.size() - 8) bad("header length");
        result.header_bytes = static_cast<std::size_t>(length);
        json_ = file_.substr(8, result.header_bytes);
        const std::string_view data = file_.substr(8 + result.header_bytes);
        if (json_.empty() || json_[0] != '{') bad("no object");
        each_member([&](const std::string& name) {
            if (name == "__metadata__") {
                each_member([&](const std::string& key) { once(result.metadata, key) = string(); });
            } else {
                once(result.tensors, name) = tensor();
            }
        });
        blanks();
        if (at_ != json_.size()) bad("trailing text");
        cover(result, data);
        return result;
    }

private:
    [[noreturn]] static void bad(const std::string& what) { throw std::runtime_error(what); }

    template <class Map>
    static typename Map::mapped_type& once(Map& map, const std::string& key) {
        if (map.count(key) != 0) bad("duplicate " + key);
        return map[key];
    }

    void blanks() {
        while (at_ < json_.size() && json_[at_] == ' ') ++at_;
    }
    bool next_is(char c) {
        blanks();
        return at_ < json_.size() && json_[at_] == c;
    }
    void take(char c) {
        if (!next_is(c)) bad(std::string("expected ") + c);
        ++at_;
    }

    std::string string() {
        take('"');
        std::string result;
        for (;; ++at_) {
            if (at_ >= json_.size()) bad("open string");
            char c = json_[at_];
            if (c == '"') break;
            if (c == '\\') {
                c = ++at_ < json_.size() ? json_[at_] : ' ';
                if (c != '"' && c != '\\') bad("escape");
            }
            if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e)
                bad("not plain text");
            result += c;
        }
        ++at_;
        return result;
    }

    std::uint64_t number() {
        blanks();
        const std::size_t start = at_;
        std::uint64_t value = 0;
        while (at_ < json_.size() && json_[at_] >= '0' && json_[at_] <= '9') {
            if (value > (UINT64_MAX >> 1) / 10 - 1) bad("large number");
            value = value * 10 + static_cast<std::uint64_t>(json_[at_++] - '0');
        }
        if (at_ == start || (json_[start] == '0' && at_ > start + 1)) bad("not a number");
        return value;
    }

    std::vector<std::uint64_t> numbers() {
        std::vector<std::uint64_t> result;
        take('[');
        while (!next_is(']')) {
            if (!result.empty()) take(',');
            result.push_back(number());
        }
        take(']');
        return result;
    }

    template <class Body>
    void each_member(Body body) {
        take('{');
        for (bool first = true; !next_is('}'); first = false) {
            if (!first) take(',');
            const std::string key = string();
            take(':');
            body(key);
        }
        take('}');
    }

    static std::uint64_t bits_of(const std::string& dtype) {
        static const std::map<std::string, std::uint64_t> bits = {
            {"F64", 64},    {"F32", 32},    {"F16", 16},        {"BF16", 16},      {"I64", 64},    {"I32", 32},
            {"I16", 16},    {"I8", 8},      {"U64", 64},        {"U32", 32},       {"U16", 16},    {"U8", 8},
            {"BOOL", 8},    {"C64", 64},    {"F4", 4},          {"F6_E2M3", 6},    {"F6_E3M2", 6}, {"F8_E4M3", 8},
            {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}};
        const auto found = bits.find(dtype);
        if (found == bits.end()) bad("dtype " + dtype);
        return found->second;
    }

    SimpleTensor tensor() {
        std::map<std::string, int> seen;
        SimpleTensor result;
        std::vector<std::uint64_t> offsets;
        each_member([&](const std::string& field) {
            if (++seen[field] > 1) bad("field twice");
            if (field == "dtype") {
                result.dtype = string();
            } else if (field == "shape") {
                for (const std::uint64_t size : numbers()) result.shape.push_back(static_cast<std::int64_t>(size));
            } else if (field == "data_offsets") {
                offsets = numbers();
            } else {
                bad("field " + field);
            }
        });
        if (seen.size() != 3 || offsets.size() != 2 || result.shape.size() > 8) bad("fields");
        unsigned __int128 bits = bits_of(result.dtype), nonzero = bits;
        for (const std::int64_t size : result.shape) {
            bits *= static_cast<std::uint64_t>(size);
            nonzero *= static_cast<std::uint64_t>(size == 0 ? 1 : size);
            if (nonzero >> 63 != 0) bad("overflow");
        }
        if (offsets[1] < offsets[0] || bits != 8 * static_cast<unsigned __int128>(offsets[1] - offsets[0]))
            bad("span");
        result.begin = offsets[0];
        result.end = offsets[1];
        return result;
    }

    // Every byte of the data belongs to exactly one tensor.
    static void cover(SimpleFile& file, std::string_view data) {
        std::vector<int> owners(data.size(), 0);
        for (auto& [name, tensor] : file.tensors) {
            if (tensor.end > data.size()) bad("beyond the end: " + name);
            for (std::size_t i = tensor.begin; i < tensor.end; ++i) ++owners[i];
            tensor.bytes = data.substr(tensor.begin, tensor.end - tensor.begin);
        }
        for (const int count : owners) {
            if (count != 1) bad(count == 0 ? "hole" : "overlap");
        }
    }

    std::string_view file_, json_;
    std::size_t at_ = 0;
};

inline SimpleFile read_simply(std::string_view file) { return SimpleReader(file).read(); }

}  // namespace headwise::testing_support
