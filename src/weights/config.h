// Typed, suspicious access to a config.json: a key that nobody asked for and that is not known to be harmless is an
// error, because it might change the result.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <headwise/weights.h>

#include "weights/json.h"

namespace headwise {

// One JSON object of a config.json. A key whose value is null counts as absent, as in transformers.
class Config {
public:
    // `object` must outlive this. `where` begins every message: the file, and the path of a nested object.
    Config(const Json& object, std::string where);

    const std::string& where() const noexcept { return where_; }

    // Every accessor marks its key as understood. They throw Error bad_data if the value is of the wrong kind.
    std::optional<std::int64_t> size(std::string_view key);  // 1 ... 2^31
    std::optional<bool> flag(std::string_view key);
    std::optional<double> number(std::string_view key);  // finite, as JSON always is
    std::optional<std::string> string(std::string_view key);
    std::optional<std::string> spelling(std::string_view key);  // true, false, or a string as it is; else its kind
    std::optional<Config> object(std::string_view key);
    const Json* list(std::string_view key);  // null if absent or null
    const Json* find(std::string_view key);  // null if absent or null
    bool given(std::string_view key);        // the key is there, perhaps with null
    void ignore(std::string_view key);       // understood, and without effect here

    // `harmless`: keys separated by blanks. Throws Error unsupported for the first key that is neither understood nor
    // in one of the lists. Names that begin with '_' are private notes of the program that wrote the file.
    void refuse_unknown(std::initializer_list<std::string_view> harmless) const;

private:
    const Json* expect(std::string_view key, Json::Kind kind, const char* wanted);

    const Json* object_;
    std::string where_;
    std::set<std::string, std::less<>> understood_;
};

// Is `word` one of the words of `list`, which blanks separate?
bool contains_word(std::string_view list, std::string_view word) noexcept;

// The whole file as a tree whose root is an object.
Json read_config(const std::string& path, const FileLimits& limits);

}  // namespace headwise
