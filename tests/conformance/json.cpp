#include "conformance/json.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

namespace headwise::conformance {

namespace {

const char* name_of(Value::Kind kind) {
    static constexpr const char* kNames[] = {"null", "true or false", "a number", "a text", "a list", "an object"};
    return kNames[static_cast<int>(kind)];
}

void expect(Value::Kind kind, Value::Kind expected) {
    if (kind != expected) throw BadData(std::string("found ") + name_of(kind) + ", expected " + name_of(expected));
}

Value from_library(const nlohmann::json& json) {
    if (json.is_boolean()) return Value(json.get<bool>());
    if (json.is_number()) return Value(json.get<double>());
    if (json.is_string()) return Value(json.get<std::string>());
    Value value;
    if (json.is_array()) {
        value = Value::list();
        for (const auto& item : json) value.add(from_library(item));
    } else if (json.is_object()) {
        value = Value::object();
        for (const auto& [key, item] : json.items()) value.set(key, from_library(item));
    }
    return value;
}

nlohmann::ordered_json to_library(const Value& value) {
    nlohmann::ordered_json json;
    switch (value.kind) {
        case Value::Kind::null:
            break;
        case Value::Kind::boolean:
            json = value.flag;
            break;
        case Value::Kind::number:
            if (value.amount == std::floor(value.amount) && std::abs(value.amount) < 0x1p53) {
                json = static_cast<std::int64_t>(value.amount);
            } else {
                json = value.amount;
            }
            break;
        case Value::Kind::text:
            json = value.words;
            break;
        case Value::Kind::list:
            json = nlohmann::ordered_json::array();
            for (const Value& item : value.items) json.push_back(to_library(item));
            break;
        case Value::Kind::object:
            json = nlohmann::ordered_json::object();
            for (std::size_t i = 0; i < value.items.size(); ++i) json[value.keys[i]] = to_library(value.items[i]);
            break;
    }
    return json;
}

}  // namespace

Value& Value::add(Value value) {
    items.push_back(std::move(value));
    return *this;
}

Value& Value::set(std::string key, Value value) {
    keys.push_back(std::move(key));
    items.push_back(std::move(value));
    return *this;
}

const Value* Value::find(std::string_view key) const noexcept {
    for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i] == key) return &items[i];
    }
    return nullptr;
}

const Value& Value::at(std::string_view key) const {
    if (const Value* value = find(key)) return *value;
    throw BadData("there is no \"" + std::string(key) + "\"");
}

bool Value::as_bool() const {
    expect(kind, Kind::boolean);
    return flag;
}

double Value::as_number() const {
    expect(kind, Kind::number);
    return amount;
}

std::int64_t Value::as_integer() const {
    expect(kind, Kind::number);
    if (amount != std::floor(amount) || std::abs(amount) >= 0x1p53) throw BadData("expected an integer");
    return static_cast<std::int64_t>(amount);
}

const std::string& Value::as_text() const {
    expect(kind, Kind::text);
    return words;
}

const std::vector<Value>& Value::as_list() const {
    expect(kind, Kind::list);
    return items;
}

std::vector<std::int64_t> Value::as_integers() const {
    std::vector<std::int64_t> numbers;
    for (const Value& item : as_list()) numbers.push_back(item.as_integer());
    return numbers;
}

Value parse_json(const std::string& text, const std::string& where) {
    try {
        return from_library(nlohmann::json::parse(text));
    } catch (const nlohmann::json::exception& error) {
        throw BadData(where + ": " + error.what());
    }
}

std::string to_json(const Value& value) {
    return to_library(value).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!file.is_open() || file.bad()) throw BadData("cannot read " + path);
    return bytes;
}

}  // namespace headwise::conformance
