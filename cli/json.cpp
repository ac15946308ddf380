// The only file of the command line that sees nlohmann-json: it is slow to compile.
#include "cli/json.h"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace headwise::cli {

namespace {

using Tree = nlohmann::ordered_json;

Tree to_tree(const Json& json);

struct ToTree {
    Tree operator()(const Json::Array& values) const {
        Tree tree = Tree::array();
        for (const Json& value : values) tree.push_back(to_tree(value));
        return tree;
    }
    Tree operator()(const Json::Object& members) const {
        Tree tree = Tree::object();
        for (const auto& [name, value] : members) tree[name] = to_tree(value);
        return tree;
    }
    Tree operator()(const auto& scalar) const { return Tree(scalar); }
};

Tree to_tree(const Json& json) { return std::visit(ToTree{}, json.value()); }

}  // namespace

Json Json::object(std::initializer_list<Member> members) {
    Json json;
    json.value_ = Object(members);
    return json;
}

void Json::set(std::string name, Json value) {
    std::get<Object>(value_).emplace_back(std::move(name), std::move(value));
}

void Json::push(Json value) { std::get<Array>(value_).push_back(std::move(value)); }

void print(const Json& json) {
    const std::string text = to_tree(json).dump(-1, ' ', false, Tree::error_handler_t::replace);
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fputc('\n', stdout);
}

}  // namespace headwise::cli
