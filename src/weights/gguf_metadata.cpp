#include "weights/gguf_metadata.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {

GgufMetadata::GgufMetadata(const GgufFile& file) : file_(file) {
    const auto& metadata = file.header().metadata;
    const auto found = metadata.find("general.architecture");
    if (found == metadata.end() || found->second.kind != GgufValue::Kind::string) {
        fail(ErrorCode::bad_data, where(), ": metadata key 'general.architecture' is missing; it names the model");
    }
    architecture_ = found->second.text;
}

const GgufValue* GgufMetadata::find(std::string_view setting) {
    understood_.emplace(setting);
    const auto& metadata = file_.header().metadata;
    const auto found = metadata.find(key(setting));
    return found == metadata.end() ? nullptr : &found->second;
}

const GgufValue* GgufMetadata::of_layer(std::string_view setting, std::int64_t layer, std::int64_t layers) {
    const GgufValue* const value = find(setting);
    if (value == nullptr || value->kind != GgufValue::Kind::array) return value;
    if (value->count != layers || value->items.empty()) {
        fail(ErrorCode::bad_data, where(), ": metadata key ", quote(key(setting)), " is an array of ",
             value->count, ", expected one entry for each of ", layers, " layers");
    }
    return &value->items[static_cast<std::size_t>(layer)];
}

void GgufMetadata::wrong_kind(std::string_view setting, const GgufValue& value, const char* wanted) const {
    fail(ErrorCode::bad_data, where(), ": metadata key ", quote(key(setting)), " is ", describe(value.kind),
         ", expected ", wanted);
}

std::optional<std::int64_t> GgufMetadata::size(std::string_view setting, std::int64_t layer, std::int64_t layers) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // products of two sizes stay inside 63 bits
    const GgufValue* const value = layers > 0 ? of_layer(setting, layer, layers) : find(setting);
    if (value == nullptr) return std::nullopt;
    if (value->kind != GgufValue::Kind::integer) wrong_kind(setting, *value, "a whole number");
    if (value->whole < 0 || value->whole > kLargest) {
        fail(ErrorCode::bad_data, where(), ": metadata key ", quote(key(setting)), " is ", value->whole,
             ", expected 0 to ", kLargest);
    }
    return value->whole;
}

std::int64_t GgufMetadata::need(std::string_view setting, std::int64_t layer, std::int64_t layers) {
    const auto value = size(setting, layer, layers);
    if (!value) fail(ErrorCode::bad_data, where(), ": metadata key ", quote(key(setting)), " is missing");
    if (*value == 0) fail(ErrorCode::bad_data, where(), ": metadata key ", quote(key(setting)), " is 0");
    return *value;
}

std::optional<double> GgufMetadata::number(std::string_view setting) {
    const GgufValue* const value = find(setting);
    if (value == nullptr) return std::nullopt;
    if (value->kind != GgufValue::Kind::integer && value->kind != GgufValue::Kind::number) {
        wrong_kind(setting, *value, "a number");
    }
    if (!std::isfinite(value->real)) {
        fail(ErrorCode::bad_data, where(), ": metadata key ", quote(key(setting)), " is not finite");
    }
    return value->real;
}

std::optional<bool> GgufMetadata::flag(std::string_view setting) {
    const GgufValue* const value = find(setting);
    if (value == nullptr) return std::nullopt;
    if (value->kind != GgufValue::Kind::boolean) wrong_kind(setting, *value, "a boolean");
    return value->whole != 0;
}

std::optional<bool> GgufMetadata::flag(std::string_view setting, std::int64_t layer, std::int64_t layers) {
    const GgufValue* const value = find(setting);
    if (value == nullptr || value->kind != GgufValue::Kind::array) return std::nullopt;
    const GgufValue& entry = *of_layer(setting, layer, layers);
    if (entry.kind == GgufValue::Kind::number) wrong_kind(setting, entry, "a boolean");
    return entry.whole != 0;
}

std::optional<std::string> GgufMetadata::word(std::string_view setting) {
    const GgufValue* const value = find(setting);
    if (value == nullptr) return std::nullopt;
    if (value->kind != GgufValue::Kind::string) wrong_kind(setting, *value, "a string");
    return value->text;
}

void GgufMetadata::refuse_unknown(std::span<const std::string_view> harmless) const {
    const std::string prefix = architecture_ + ".";
    const auto& metadata = file_.header().metadata;
    for (auto at = metadata.lower_bound(prefix); at != metadata.end() && at->first.starts_with(prefix); ++at) {
        const std::string_view setting = std::string_view(at->first).substr(prefix.size());
        if (understood_.contains(setting)) continue;
        if (std::find(harmless.begin(), harmless.end(), setting) != harmless.end()) continue;
        fail(ErrorCode::unsupported, where(), ": the metadata key ", quote(at->first),
             " is unknown to headwise for this architecture and might change what attention computes");
    }
}

}  // namespace headwise
