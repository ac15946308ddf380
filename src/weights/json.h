// JSON in and out. json.cpp is the only translation unit of the library that sees the JSON library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headwise {

// Receives a document piece by piece, so that large headers never become a tree. Any call may throw.
class JsonHandler {
public:
    virtual ~JsonHandler() = default;
    virtual void null() = 0;
    virtual void boolean(bool value) = 0;
    virtual void integer(std::int64_t value) = 0;
    virtual void number(double value) = 0;  // with a fraction or an exponent, or beyond 63 bits
    virtual void string(std::string& value) = 0;
    virtual void key(std::string& name) = 0;
    virtual void begin_object() = 0;
    virtual void end_object() = 0;
    virtual void begin_array() = 0;
    virtual void end_array() = 0;
};

// Calls `handler` for one whole document. Throws Error bad_data, beginning with `where`, for anything that is not
// strict UTF-8 JSON, for a key that appears twice in one object, and for nesting beyond `depth`.
void parse_json(std::string_view text, std::int64_t depth, const std::string& where, JsonHandler& handler);

// A small document as a tree.
struct Json {
    enum class Kind : std::uint8_t { null, boolean, integer, number, string, array, object };
    Kind kind = Kind::null;
    bool flag = false;
    std::int64_t whole = 0;  // integer
    double real = 0;         // integer and number
    std::string text;
    std::vector<std::string> keys;  // object: keys[i] names items[i]
    std::vector<Json> items;        // array and object

    const Json* find(std::string_view name) const noexcept;  // null if there is no such key
};

inline constexpr std::size_t kMaxJsonValues = 1 << 17;  // of one tree

// As above; beyond kMaxJsonValues values: Error bad_data.
Json parse_json_tree(std::string_view text, std::int64_t depth, const std::string& where);

const char* describe(Json::Kind kind) noexcept;  // "a string", "an object", ...

// `text` as a JSON string with its quotes. Throws Error invalid_argument if it is not UTF-8.
std::string json_string(std::string_view text);

}  // namespace headwise
