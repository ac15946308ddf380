#include "weights/config.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "weights/file.h"
#include "weights/quote.h"

namespace headwise {

Config::Config(const Json& object, std::string where) : object_(&object), where_(std::move(where)) {
    if (object.kind != Json::Kind::object) {
        fail(ErrorCode::bad_data, where_, ": expected an object, found ", describe(object.kind));
    }
}

const Json* Config::find(std::string_view key) {
    understood_.emplace(key);
    const Json* value = object_->find(key);
    return value == nullptr || value->kind == Json::Kind::null ? nullptr : value;
}

const Json* Config::expect(std::string_view key, Json::Kind kind, const char* wanted) {
    const Json* value = find(key);
    if (value != nullptr && value->kind != kind) {
        fail(ErrorCode::bad_data, where_, ": ", key, " is ", describe(value->kind), ", expected ", wanted);
    }
    return value;
}

std::optional<std::int64_t> Config::size(std::string_view key) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // products of two sizes stay inside 63 bits
    const Json* value = expect(key, Json::Kind::integer, "a whole number");
    if (value == nullptr) return std::nullopt;
    if (value->whole < 1 || value->whole > kLargest) {
        fail(ErrorCode::bad_data, where_, ": ", key, " is ", value->whole, ", expected 1 to ", kLargest);
    }
    return value->whole;
}

std::optional<bool> Config::flag(std::string_view key) {
    const Json* value = expect(key, Json::Kind::boolean, "true or false");
    return value == nullptr ? std::nullopt : std::optional(value->flag);
}

std::optional<double> Config::number(std::string_view key) {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->kind != Json::Kind::integer && value->kind != Json::Kind::number) {
        fail(ErrorCode::bad_data, where_, ": ", key, " is ", describe(value->kind), ", expected a number");
    }
    return value->real;
}

std::optional<std::string> Config::string(std::string_view key) {
    const Json* value = expect(key, Json::Kind::string, "a string");
    return value == nullptr ? std::nullopt : std::optional(value->text);
}

std::optional<std::string> Config::spelling(std::string_view key) {
    const Json* value = find(key);
    if (value == nullptr) return std::nullopt;
    if (value->kind == Json::Kind::boolean) return value->flag ? "true" : "false";
    return value->kind == Json::Kind::string ? value->text : describe(value->kind);
}

std::optional<Config> Config::object(std::string_view key) {
    const Json* value = expect(key, Json::Kind::object, "an object");
    if (value == nullptr) return std::nullopt;
    return Config(*value, text(where_, ": ", key));
}

const Json* Config::list(std::string_view key) { return expect(key, Json::Kind::array, "a list"); }

bool Config::given(std::string_view key) {
    understood_.emplace(key);
    return object_->find(key) != nullptr;
}

void Config::ignore(std::string_view key) { understood_.emplace(key); }

void Config::refuse_unknown(std::initializer_list<std::string_view> harmless) const {
    for (std::size_t i = 0; i < object_->keys.size(); ++i) {
        const std::string& key = object_->keys[i];
        if (object_->items[i].kind == Json::Kind::null || key.starts_with('_') || understood_.contains(key))
            continue;
        if (std::any_of(harmless.begin(), harmless.end(),
                        [&](std::string_view list) { return contains_word(list, key); }))
            continue;
        fail(
            ErrorCode::unsupported, where_, ": the key ", quote(key),
            " is unknown to headwise and might change what attention computes; if it does not, remove it from the "
            "file");
    }
}

bool contains_word(std::string_view list, std::string_view word) noexcept {
    if (word.empty()) return false;
    for (std::size_t at = list.find(word); at != std::string_view::npos; at = list.find(word, at + 1)) {
        const std::size_t end = at + word.size();
        if ((at == 0 || list[at - 1] == ' ') && (end == list.size() || list[end] == ' ')) return true;
    }
    return false;
}

Json read_config(const std::string& path, const FileLimits& limits) {
    Json root =
        parse_json_tree(InputFile(path).read_text(limits.config_bytes, "config_bytes"), limits.json_depth, path);
    if (root.kind != Json::Kind::object) {
        fail(ErrorCode::bad_data, path, ": expected an object, found ", describe(root.kind));
    }
    return root;
}

}  // namespace headwise
