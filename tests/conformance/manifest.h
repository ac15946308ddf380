// Manifests of conformance vectors: which tests there are, and the files that hold their tensors. Two forms: `tests`
// (attention, onnx, torch_mha, rope_norm) and `cases` (models), where every point of a case is a test for each of its
// config files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <headwise/tensor.h>

#include "conformance/json.h"

namespace headwise::conformance {

struct TensorDecl {
    std::string dtype;  // as safetensors spells it: "F32"
    std::vector<std::int64_t> sizes;
};

struct VectorFile {
    std::string path, sha256;
};

struct Test {
    std::string
        suite;  // "attention", "onnx", "torch_mha", "rope_norm", "models": said by the content, not the folder
    std::string name;
    std::vector<VectorFile> files;  // the first one holds inputs and expected outputs
    Value line;                     // the line of the manifest
    std::map<std::string, TensorDecl> inputs, outputs;

    Value tolerance;        // onnx only: {rtol, atol}
    std::string directory;  // models only: the directory of the case
    std::string config;     // models only: "config.json", "config.legacy.json" or "model.gguf"
    Value point;            // models only: the entry of `points`

    const Value& attributes() const { return line.at("attributes"); }
};

// The manifest itself, or the manifest.json in a directory and in its sub-directories. Throws BadData if there is none.
std::vector<std::string> find_manifests(const std::string& path);

// Throws BadData for a manifest that cannot be read or has another form.
std::vector<Test> read_manifest(const std::string& path);

// Throws BadData for a spelling that headwise does not know.
DType dtype_of(const std::string& stored);

// The tensors of one vector file, each loaded at first use and kept, checked against what the manifest says of it.
class TensorSet {
public:
    explicit TensorSet(const Test& test) : test_(test) {}

    bool has_input(const std::string& name) const { return test_.inputs.contains(name); }
    bool has_output(const std::string& name) const { return test_.outputs.contains(name); }
    ConstTensorView input(const std::string& name) { return load(name, test_.inputs); }
    ConstTensorView expected(const std::string& name) { return load(name, test_.outputs); }
    ConstTensorView optional_input(const std::string& name) {
        return has_input(name) ? input(name) : ConstTensorView{};
    }

private:
    ConstTensorView load(const std::string& name, const std::map<std::string, TensorDecl>& declared);

    const Test& test_;
    std::map<std::string, Tensor> loaded_;
};

}  // namespace headwise::conformance
