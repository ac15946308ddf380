// The machine-readable answer of a command: a small tree, written as one JSON object.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace headwise::cli {

class Json {
public:
    using Member = std::pair<std::string, Json>;
    using Array = std::vector<Json>;
    using Object = std::vector<Member>;  // in the order of writing

    Json() = default;  // null
    Json(bool value) : value_(value) {}
    Json(std::integral auto value) : value_(static_cast<std::int64_t>(value)) {}
    Json(double value) : value_(value) {}  // NaN and Inf are written as null
    Json(const char* value) : value_(std::string(value)) {}
    Json(std::string_view value) : value_(std::string(value)) {}
    Json(std::string value) : value_(std::move(value)) {}

    static Json object(std::initializer_list<Member> members);
    static Json array() { return Json(Array{}); }
    template <std::ranges::range Values>
    static Json array(const Values& values) {
        Json list = array();
        for (const auto& value : values) list.push(Json(value));
        return list;
    }

    void set(std::string name, Json value);  // this must be an object
    void push(Json value);                   // this must be an array

    const auto& value() const { return value_; }

private:
    explicit Json(Array values) : value_(std::move(values)) {}

    std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Array, Object> value_;
};

// Prints the tree as one line on standard output. Bytes that are not UTF-8 become U+FFFD.
void print(const Json& json);

}  // namespace headwise::cli
