// GGUF files written byte by byte for tests.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "file_support.h"

namespace headwise::testing_support {

// Codes of metadata values and of element types, as the format has them.
enum GgufCode : std::uint32_t {
    kU8 = 0,
    kI32 = 5,
    kU32 = 4,
    kF32 = 6,
    kBool = 7,
    kText = 8,
    kArray = 9,
    kU64 = 10
};
enum GgufTensorCode : std::uint32_t { kTensorF32 = 0, kTensorF16 = 1, kTensorQ8_0 = 8, kTensorIq4Nl = 20 };

inline std::string gguf_text(std::string_view text) { return little(text.size()) + std::string(text); }
inline std::string floats(const std::vector<float>& values) {
    std::string result;
    for (const float value : values) result += little(std::bit_cast<std::uint32_t>(value), 4);
    return result;
}

// Every part may be set to something that the format forbids.
class GgufBuilder {
public:
    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::uint64_t alignment = 32;
    std::uint64_t more_tensors = 0, more_keys = 0;  // claimed beyond those that are there

    GgufBuilder& key(std::string_view name, std::uint32_t code, const std::string& bytes) {
        keys_.push_back(gguf_text(name) + little(code, 4) + bytes);
        return *this;
    }
    GgufBuilder& u32(std::string_view name, std::uint32_t value) { return key(name, kU32, little(value, 4)); }
    GgufBuilder& f32(std::string_view name, float value) { return key(name, kF32, floats({value})); }
    GgufBuilder& text(std::string_view name, std::string_view value) { return key(name, kText, gguf_text(value)); }

    // `sizes` in the file's order, the row first.
    GgufBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                        std::string_view data) {
        data_.resize((data_.size() + alignment - 1) / alignment * alignment);
        const std::uint64_t offset = data_.size();
        data_ += data;
        return tensor_at(name, sizes, type, offset);
    }
    // An entry without data of its own.
    GgufBuilder& tensor_at(std::string_view name, const std::vector<std::uint64_t>& sizes, std::uint32_t type,
                           std::uint64_t offset) {
        std::string entry = gguf_text(name) + little(sizes.size(), 4);
        for (const std::uint64_t size : sizes) entry += little(size);
        tensors_.push_back(entry + little(type, 4) + little(offset));
        return *this;
    }

    std::string header() const {
        std::string result =
            magic + little(version, 4) + little(tensors_.size() + more_tensors) + little(keys_.size() + more_keys);
        for (const std::string& key : keys_) result += key;
        for (const std::string& tensor : tensors_) result += tensor;
        return result;
    }
    std::string build() const {
        std::string result = header();
        result.resize((result.size() + alignment - 1) / alignment * alignment);
        return result + data_;
    }

private:
    std::vector<std::string> keys_, tensors_;
    std::string data_;
};

}  // namespace headwise::testing_support
