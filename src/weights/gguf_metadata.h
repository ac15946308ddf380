// Typed, suspicious access to the metadata of a GGUF file: a setting of the architecture that nobody asked for and that
// is not known to be harmless is an error, because it might change the result.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "weights/gguf_file.h"

namespace headwise {

// Settings are named without the architecture that begins their keys: "attention.head_count".
class GgufMetadata {
public:
    // Throws Error bad_data if general.architecture is missing. `file` must outlive this.
    explicit GgufMetadata(const GgufFile& file);

    const std::string& where() const noexcept { return file_.path(); }
    const std::string& architecture() const noexcept { return architecture_; }

    // Every accessor marks its setting as understood. They throw Error bad_data for a value of the wrong kind.
    // Where a setting is an array with one entry for each of `layers` layers, the entry of `layer` counts.
    std::optional<std::int64_t> size(std::string_view setting, std::int64_t layer,
                                     std::int64_t layers);  // 0 ... 2^31
    std::optional<std::int64_t> size(std::string_view setting) { return size(setting, 0, 0); }
    std::optional<double> number(std::string_view setting);  // finite
    std::optional<bool> flag(std::string_view setting);
    std::optional<bool> flag(std::string_view setting, std::int64_t layer,
                             std::int64_t layers);  // an array, else nothing
    std::optional<std::string> word(std::string_view setting);

    std::int64_t need(std::string_view setting, std::int64_t layer, std::int64_t layers);  // 1 ... 2^31

    // Throws Error unsupported for the first setting that is neither understood nor in `harmless`.
    void refuse_unknown(std::span<const std::string_view> harmless) const;

private:
    std::string key(std::string_view setting) const { return architecture_ + "." + std::string(setting); }
    const GgufValue* find(std::string_view setting);
    const GgufValue* of_layer(std::string_view setting, std::int64_t layer, std::int64_t layers);
    [[noreturn]] void wrong_kind(std::string_view setting, const GgufValue& value, const char* wanted) const;

    const GgufFile& file_;
    std::string architecture_;
    std::set<std::string, std::less<>> understood_;
};

}  // namespace headwise
