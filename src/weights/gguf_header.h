// The beginning of a GGUF file: metadata, then the list of tensors; their data follows at the next multiple of the
// alignment. Everything is little-endian.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <headwise/weights.h>

#include "weights/file.h"
#include "weights/gguf_dequant.h"

namespace headwise {

// One value of the metadata. Of arrays only short ones of numbers and booleans are kept: settings that differ from
// layer to layer. The vocabulary of a tokenizer is walked over.
struct GgufValue {
    enum class Kind : std::uint8_t { boolean, integer, number, string, array };
    Kind kind = Kind::integer;
    std::int64_t whole = 0;          // integer; boolean as 0 or 1
    double real = 0;                 // integer, boolean and number
    std::string text{};              // string
    std::int64_t count = 0;          // array: how many elements it has
    std::vector<GgufValue> items{};  // array: all of them, or none
};

const char* describe(GgufValue::Kind kind) noexcept;  // "a string", "an array", ...

inline constexpr std::int64_t kKeptItems = 4096;  // the longest array that is kept

struct GgufEntry {
    const GgufType* type = nullptr;
    std::vector<std::int64_t> sizes;  // row-major, as everywhere else: the reverse of the file's order
    std::int64_t begin = 0, end = 0;  // in bytes, counted from the first byte of the data
};

struct GgufHeader {
    std::int64_t version = 0;
    std::map<std::string, GgufValue> metadata;
    std::map<std::string, GgufEntry> tensors;
    std::int64_t data_begin = 0;  // in the file
};

inline constexpr char kGgufMagic[4] = {'G', 'G', 'U', 'F'};

// Parses and checks everything that the format promises: names appear once, every tensor is a whole number of blocks,
// begins at a multiple of the alignment, lies inside the file and overlaps no other. Throws Error bad_data that
// names the file and the byte; unsupported for other versions, other byte orders and element types that the format does
// not have.
GgufHeader read_gguf_header(const InputFile& file, const FileLimits& limits);

}  // namespace headwise
