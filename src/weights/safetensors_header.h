// The header of one safetensors file: 8 bytes of little-endian length, that many bytes of JSON, then the data.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headwise/tensor.h>
#include <headwise/weights.h>

namespace headwise {

// One element type of the format. `loaded` is empty for those that DType lacks.
struct StoredType {
    std::string_view name;
    std::int64_t bits;
    std::optional<DType> loaded;
};

const StoredType* find_stored_type(std::string_view name) noexcept;
std::string_view stored_name_of(DType dtype) noexcept;

struct HeaderEntry {
    const StoredType* type = nullptr;
    std::vector<std::int64_t> sizes;
    std::int64_t begin = 0, end = 0;  // in bytes, counted from the first byte after the header
};

struct SafetensorsHeader {
    std::map<std::string, HeaderEntry> tensors;
    std::map<std::string, std::string> metadata;
};

// Parses and checks everything the format promises: known types, spans that are exactly as long as type and shape
// say, and tensors that cover the `data_bytes` behind the header once and without holes. Throws Error bad_data,
// beginning with `where`.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const FileLimits& limits, const std::string& where);

}  // namespace headwise
