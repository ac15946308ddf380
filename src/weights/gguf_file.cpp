#include "weights/gguf_file.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/check.h"
#include "weights/near_names.h"
#include "weights/quote.h"

namespace headwise {
namespace {

constexpr std::int64_t kChunkBytes = 1 << 20;  // of blocks that are read at a time

std::string value_text(const GgufValue& value) {
    switch (value.kind) {
        case GgufValue::Kind::boolean:
            return value.whole != 0 ? "true" : "false";
        case GgufValue::Kind::integer:
            return std::to_string(value.whole);
        case GgufValue::Kind::number:
            return text(value.real);
        default:
            return value.text;
    }
}

}  // namespace

bool is_gguf(const InputFile& file) {
    if (file.path().ends_with(".gguf")) return true;
    char magic[sizeof kGgufMagic];
    if (file.size() < static_cast<std::int64_t>(sizeof magic)) return false;
    file.read(0, magic, sizeof magic);
    return std::memcmp(magic, kGgufMagic, sizeof magic) == 0;
}

GgufFile::GgufFile(InputFile file, const FileLimits& limits)
    : file_(std::move(file)), header_(read_gguf_header(file_, limits)) {}

const GgufEntry* GgufFile::find(const std::string& name) const noexcept {
    const auto found = header_.tensors.find(name);
    return found == header_.tensors.end() ? nullptr : &found->second;
}

Tensor GgufFile::load(const std::string& name) const {
    const GgufEntry* const entry = find(name);
    if (entry == nullptr) {
        std::vector<std::string> names;
        for (const auto& item : header_.tensors) names.push_back(item.first);
        fail(ErrorCode::bad_data, path(), ": no tensor ", quote(name), "; ",
             describe_near_names(name, std::move(names)));
    }
    const GgufType& type = *entry->type;
    if (!type.loadable()) {
        fail(
            ErrorCode::unsupported, path(), ": tensor ", quote(name), " is stored as ", type.name,
            "; headwise loads F32, F16, BF16, F64, I32, I64, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K "
            "and Q6_K");
    }
    Tensor tensor(type.plain.value_or(DType::f32), entry->sizes);
    if (type.plain) {
        file_.read(header_.data_begin + entry->begin, tensor.view().data, entry->end - entry->begin);
    } else {
        decode(*entry, tensor.data<float>());
    }
    return tensor;
}

void GgufFile::decode(const GgufEntry& entry, float* to) const {
    const GgufType& type = *entry.type;
    const std::int64_t bytes = entry.end - entry.begin;
    const std::int64_t chunk = kChunkBytes / type.block_bytes * type.block_bytes;
    std::vector<std::uint8_t> blocks(static_cast<std::size_t>(std::min(bytes, chunk)));
    for (std::int64_t done = 0; done < bytes;) {
        const std::int64_t step = std::min(bytes - done, chunk);
        file_.read(header_.data_begin + entry.begin + done, blocks.data(), step);
        for (std::int64_t at = 0; at < step; at += type.block_bytes, to += type.block_elements) {
            type.decode(blocks.data() + at, to);
        }
        done += step;
    }
}

std::map<std::string, std::string> GgufFile::metadata_text() const {
    std::map<std::string, std::string> result;
    for (const auto& [key, value] : header_.metadata) {
        if (value.kind != GgufValue::Kind::array) result.emplace(key, value_text(value));
    }
    return result;
}

}  // namespace headwise
