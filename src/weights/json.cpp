#include "weights/json.h"

#include <algorithm>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {
namespace {

// Between the parser and a handler: depth, duplicate keys, and errors in our words.
class Adapter final : public nlohmann::json_sax<nlohmann::json> {
public:
    Adapter(std::string_view text, std::int64_t depth, const std::string& where, JsonHandler& handler)
        : text_(text), depth_(depth), where_(where), handler_(handler) {}

    bool null() override { return handler_.null(), true; }
    bool boolean(bool value) override { return handler_.boolean(value), true; }
    bool number_integer(number_integer_t value) override { return handler_.integer(value), true; }
    bool number_unsigned(number_unsigned_t value) override {
        if (value <= static_cast<number_unsigned_t>(INT64_MAX)) {
            handler_.integer(static_cast<std::int64_t>(value));
        } else {
            handler_.number(static_cast<double>(value));
        }
        return true;
    }
    bool number_float(number_float_t value, const string_t&) override { return handler_.number(value), true; }
    bool string(string_t& value) override { return handler_.string(value), true; }
    bool binary(binary_t&) override { return false; }  // not in JSON text

    bool key(string_t& name) override {
        if (!open_.back().insert(name).second) {
            fail(ErrorCode::bad_data, where_, ": the key ", quote(name), " appears twice in one JSON object");
        }
        return handler_.key(name), true;
    }
    bool start_object(std::size_t) override { return enter(), handler_.begin_object(), true; }
    bool end_object() override { return open_.pop_back(), handler_.end_object(), true; }
    bool start_array(std::size_t) override { return enter(), handler_.begin_array(), true; }
    bool end_array() override { return open_.pop_back(), handler_.end_array(), true; }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
        const std::size_t end = std::min(position > 0 ? position - 1 : 0, text_.size());
        const std::string_view before = text_.substr(0, end);
        const auto line = std::count(before.begin(), before.end(), '\n') + 1;
        const std::size_t newline = before.rfind('\n');
        const std::size_t column = newline == std::string_view::npos ? end + 1 : end - newline;
        fail(ErrorCode::bad_data, where_, ": malformed JSON at line ", line, ", column ", column, " (byte ", end,
             "); the file is damaged or is not JSON in UTF-8");
    }

private:
    void enter() {
        if (static_cast<std::int64_t>(open_.size()) >= depth_) {
            fail(ErrorCode::bad_data, where_, ": JSON is nested deeper than the limit of ", depth_);
        }
        open_.emplace_back();
    }

    std::string_view text_;
    std::int64_t depth_;
    const std::string& where_;
    JsonHandler& handler_;
    // Keys seen in each open object; ordered, because a hash could be attacked.
    std::vector<std::set<std::string>> open_;
};

class TreeBuilder final : public JsonHandler {
public:
    explicit TreeBuilder(const std::string& where) : where_(where) {}

    void null() override { add(Json::Kind::null); }
    void boolean(bool value) override { add(Json::Kind::boolean).flag = value; }
    void integer(std::int64_t value) override {
        Json& node = add(Json::Kind::integer);
        node.whole = value;
        node.real = static_cast<double>(value);
    }
    void number(double value) override { add(Json::Kind::number).real = value; }
    void string(std::string& value) override { add(Json::Kind::string).text = std::move(value); }
    void key(std::string& name) override { open_.back()->keys.push_back(std::move(name)); }
    void begin_object() override { open_.push_back(&add(Json::Kind::object)); }
    void end_object() override { open_.pop_back(); }
    void begin_array() override { open_.push_back(&add(Json::Kind::array)); }
    void end_array() override { open_.pop_back(); }

    Json root;

private:
    // Addresses of open nodes stay valid: only the innermost open node grows, and its children are closed by then.
    Json& add(Json::Kind kind) {
        if (++values_ > kMaxJsonValues) {
            fail(ErrorCode::bad_data, where_, ": more than ", kMaxJsonValues, " JSON values");
        }
        Json& node = open_.empty() ? root : open_.back()->items.emplace_back();
        node.kind = kind;
        return node;
    }

    const std::string& where_;
    std::size_t values_ = 0;
    std::vector<Json*> open_;
};

}  // namespace

void parse_json(std::string_view text, std::int64_t depth, const std::string& where, JsonHandler& handler) {
    // The parser takes a NUL for the end and skips a byte order mark; neither is JSON.
    if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
        fail(ErrorCode::bad_data, where, ": malformed JSON: a zero byte at byte ", nul);
    }
    if (text.starts_with("\xef\xbb\xbf")) {
        fail(ErrorCode::bad_data, where, ": malformed JSON: it begins with a byte order mark");
    }
    Adapter adapter(text, depth, where, handler);
    if (!nlohmann::json::sax_parse(text, &adapter)) fail(ErrorCode::bad_data, where, ": malformed JSON");
}

Json parse_json_tree(std::string_view text, std::int64_t depth, const std::string& where) {
    TreeBuilder builder(where);
    parse_json(text, depth, where, builder);
    return std::move(builder.root);
}

const Json* Json::find(std::string_view name) const noexcept {
    const auto at = std::find(keys.begin(), keys.end(), name);
    return at == keys.end() ? nullptr : &items[static_cast<std::size_t>(at - keys.begin())];
}

const char* describe(Json::Kind kind) noexcept {
    switch (kind) {
        case Json::Kind::null:
            return "null";
        case Json::Kind::boolean:
            return "true or false";
        case Json::Kind::integer:
            return "a whole number";
        case Json::Kind::number:
            return "a number";
        case Json::Kind::string:
            return "a string";
        case Json::Kind::array:
            return "a list";
        case Json::Kind::object:
            return "an object";
    }
    return "?";
}

std::string json_string(std::string_view text) {
    try {
        return nlohmann::json(text).dump();
    } catch (const nlohmann::json::exception&) {
        fail(ErrorCode::invalid_argument, "json: ", quote(text), " is not valid UTF-8");
    }
}

}  // namespace headwise
