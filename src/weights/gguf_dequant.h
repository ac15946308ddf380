// The element types of GGUF: how many bytes a block of elements takes, and how it becomes f32.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <headwise/tensor.h>

namespace headwise {

struct GgufType {
    std::uint32_t code = 0;  // in the file
    std::string_view name;
    std::int64_t block_elements = 1, block_bytes = 0;  // a row is a whole number of blocks
    std::optional<DType> plain{};                      // what DType has too: bytes are taken as they are
    // Decodes one block, rounding each product and each sum to f32 as the reference decoder does; null where there is
    // `plain`, and for types that headwise does not load.
    void (*decode)(const std::uint8_t* block, float* to) noexcept = nullptr;

    bool loadable() const noexcept { return plain.has_value() || decode != nullptr; }
};

// Null for a code that the format does not have (or has dropped): then not even the size is known.
const GgufType* find_gguf_type(std::uint32_t code) noexcept;

}  // namespace headwise
