// A JSON value without the JSON library, which only json.cpp sees. Numbers are double: the integers of a manifest are
// far below 2^53.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace headwise::conformance {

// Data that does not say what a manifest or a vector file must say. The message names the place.
struct BadData : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Value {
    enum class Kind { null, boolean, number, text, list, object };
    Kind kind = Kind::null;
    bool flag = false;
    double amount = 0;
    std::string words{};
    std::vector<Value> items{};       // of a list, or the values of an object
    std::vector<std::string> keys{};  // of an object, beside `items`

    Value() = default;
    Value(bool value) : kind(Kind::boolean), flag(value) {}
    Value(double value) : kind(Kind::number), amount(value) {}
    Value(int value) : Value(static_cast<double>(value)) {}
    Value(std::string value) : kind(Kind::text), words(std::move(value)) {}
    Value(const char* value) : Value(std::string(value)) {}

    static Value list() { return of(Kind::list); }
    static Value object() { return of(Kind::object); }
    Value& add(Value value);                   // to a list
    Value& set(std::string key, Value value);  // at the end of an object

    bool is_null() const noexcept { return kind == Kind::null; }
    const Value* find(std::string_view key) const noexcept;  // null if absent, or if this is no object
    const Value& at(std::string_view key) const;             // throws BadData if absent

    // Throw BadData if the kind differs.
    bool as_bool() const;
    double as_number() const;
    std::int64_t as_integer() const;
    const std::string& as_text() const;
    const std::vector<Value>& as_list() const;
    std::vector<std::int64_t> as_integers() const;

private:
    static Value of(Kind kind) {
        Value value;
        value.kind = kind;
        return value;
    }
};

Value parse_json(const std::string& text, const std::string& where);  // throws BadData
std::string to_json(const Value& value);                              // one line; NaN and Inf become null

// The bytes of a file. Throws BadData if it cannot be read.
std::string read_file(const std::string& path);

}  // namespace headwise::conformance
