#include "conformance/manifest.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <headwise/weights.h>

#include "core/check.h"

namespace headwise::conformance {

namespace fs = std::filesystem;

namespace {

std::map<std::string, TensorDecl> read_declarations(const Value& tensors) {
    std::map<std::string, TensorDecl> declared;
    for (std::size_t i = 0; i < tensors.items.size(); ++i) {
        const Value& tensor = tensors.items[i];
        declared[tensors.keys[i]] = {tensor.at("dtype").as_text(), tensor.at("shape").as_integers()};
    }
    return declared;
}

std::string suite_of(const Value& line) {
    if (line.find("op")) return "onnx";
    const Value& attributes = line.at("attributes");
    if (const Value* op = attributes.find("op")) {
        if (op->as_text() == "rope_norm") return "rope_norm";
        if (op->as_text() == "attention" || op->as_text() == "merge") return "attention";
        throw BadData("op \"" + op->as_text() + "\" belongs to no suite");
    }
    if (attributes.find("embed_dim")) return "torch_mha";
    throw BadData("the attributes belong to no suite");
}

Test read_test(const Value& line, const Value& manifest, const fs::path& folder) {
    Test test;
    test.name = line.at("name").as_text();
    test.suite = suite_of(line);
    test.files = {{(folder / line.at("file").as_text()).string(), line.at("sha256").as_text()}};
    test.inputs = read_declarations(line.at("inputs"));
    test.outputs = read_declarations(line.at("outputs"));
    if (test.suite == "onnx") test.tolerance = manifest.at("default_tolerance");
    test.line = line;
    return test;
}

// A unit is a point under one config file, or read from the case's model.gguf.
void read_case(const Value& line, const fs::path& folder, std::vector<Test>& tests) {
    const std::string directory = (folder / line.at("dir").as_text()).string();
    const Value& sums = line.at("sha256");
    std::vector<std::string> configs = {"config.json"};
    for (const char* other : {"config.legacy.json", "model.gguf"}) {
        if (sums.find(other)) configs.emplace_back(other);
    }
    for (const Value& point : line.at("points").as_list()) {
        for (const std::string& config : configs) {
            Test test;
            test.suite = "models";
            test.name = line.at("id").as_text() + ":" + point.at("key").as_text();
            if (config == "config.legacy.json") test.name += ":legacy";
            if (config == "model.gguf") test.name += ":gguf";
            test.directory = directory;
            test.config = config;
            test.point = point;
            test.line = line;
            for (const std::string& file :
                 {std::string("cases.safetensors"), std::string("model.safetensors"), config}) {
                test.files.push_back({directory + "/" + file, sums.at(file).as_text()});
            }
            tests.push_back(std::move(test));
        }
    }
}

}  // namespace

std::vector<std::string> find_manifests(const std::string& path) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) return {path};
    std::vector<std::string> found;
    const fs::path own = fs::path(path) / "manifest.json";
    if (fs::is_regular_file(own, error)) found.push_back(own.string());
    for (const auto& entry : fs::directory_iterator(path, error)) {
        const fs::path inner = entry.path() / "manifest.json";
        std::error_code inner_error;
        if (fs::is_regular_file(inner, inner_error)) found.push_back(inner.string());
    }
    if (found.empty()) throw BadData("no manifest.json in " + path + " or in a sub-directory of it");
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<Test> read_manifest(const std::string& path) {
    const Value manifest = parse_json(read_file(path), path);
    const fs::path folder = fs::path(path).parent_path();
    std::vector<Test> tests;
    std::string place = "the top";
    try {
        if (manifest.at("format").as_integer() != 1) throw BadData("format is not 1");
        const Value* cases = manifest.find("cases");
        const std::vector<Value>& lines = (cases ? *cases : manifest.at("tests")).as_list();
        for (std::size_t i = 0; i < lines.size(); ++i) {
            place = text("line ", i, " of \"", cases ? "cases" : "tests", "\"");
            if (cases) {
                read_case(lines[i], folder, tests);
            } else {
                tests.push_back(read_test(lines[i], manifest, folder));
            }
        }
    } catch (const BadData& error) {
        throw BadData(path + ": " + place + ": " + error.what());
    }
    return tests;
}

DType dtype_of(const std::string& stored) {
    static const std::map<std::string, DType> kTypes = {
        {"F32", DType::f32}, {"BF16", DType::bf16}, {"F16", DType::f16},     {"F64", DType::f64},
        {"I32", DType::i32}, {"I64", DType::i64},   {"BOOL", DType::boolean}};
    const auto found = kTypes.find(stored);
    if (found == kTypes.end()) throw BadData("unknown dtype " + stored);
    return found->second;
}

ConstTensorView TensorSet::load(const std::string& name, const std::map<std::string, TensorDecl>& declared) {
    const auto decl = declared.find(name);
    if (decl == declared.end()) throw BadData("the manifest line has no tensor \"" + name + "\"");
    const auto found = loaded_.find(name);
    if (found != loaded_.end()) return std::as_const(found->second).view();
    const std::string& path = test_.files.front().path;
    Tensor tensor = TensorFile(path).load(name);
    const ConstTensorView expected(nullptr, dtype_of(decl->second.dtype), decl->second.sizes);
    if (tensor.dtype() != expected.dtype || tensor.rank() != expected.rank ||
        tensor.view().sizes != expected.sizes) {
        throw BadData(path + ": \"" + name + "\" is " + tensor.view().describe() + ", the manifest says " +
                      expected.describe());
    }
    return std::as_const(loaded_.emplace(name, std::move(tensor)).first->second).view();
}

}  // namespace headwise::conformance
