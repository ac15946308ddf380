// Files in, layers out: safetensors, GGUF, .npy, and Hugging Face model directories.
// Files are hostile: every size is checked before memory is asked for, and errors name the file and the place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <headwise/export.h>
#include <headwise/kv_cache.h>
#include <headwise/mha.h>
#include <headwise/tensor.h>

namespace headwise {

// What a reader is willing to believe. Checked before allocation; beyond it: Error bad_data that names the limit.
struct FileLimits {
    std::int64_t header_bytes = 16 << 20;
    std::int64_t tensors = 1'000'000;
    std::int64_t name_bytes = 4096;
    std::int64_t json_depth = 64;                // also of arrays in the metadata of GGUF
    std::int64_t gguf_header_bytes = 256 << 20;  // tokenizers are a part of it
    std::int64_t gguf_keys = 100'000;
    std::int64_t config_bytes = 1 << 20;
    std::int64_t shards = 10'000;
    std::int64_t cache_bytes = std::int64_t{16} << 30;  // of the cache that load_cache() makes
};

struct TensorInfo {
    std::string name;
    std::string
        stored_dtype;  // as the format calls it: "F32", "BF16", "F16", "F64", "I32", "I64", "BOOL", "Q4_K", ...
    std::vector<std::int64_t> sizes;
};

// A safetensors file, several behind one `*.safetensors.index.json`, or a GGUF file. Opening reads and checks the headers
// only. GGUF: shapes are row-major as everywhere ([out, in]), quantised types are loaded as f32 (docs/gguf.md).
class HEADWISE_API TensorFile {
public:
    // `path`: a .safetensors or .gguf file, an index.json, or a directory that holds model.safetensors or its index. Behind
    // an index exactly the tensors that it names are visible.
    explicit TensorFile(const std::string& path, const FileLimits& limits = {});
    ~TensorFile();
    TensorFile(TensorFile&&) noexcept;
    TensorFile& operator=(TensorFile&&) noexcept;

    std::vector<std::string> names() const;  // sorted
    std::optional<TensorInfo> find(const std::string& name) const;
    // "__metadata__" of a single file; empty if there is none, and behind an index. GGUF: all but arrays, as text.
    const std::map<std::string, std::string>& metadata() const;

    // Reads one tensor. Throws bad_data if there is none of that name, unsupported if DType lacks its type.
    Tensor load(const std::string& name) const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// Writes to a temporary file beside `path` and renames it: either the whole file is there or nothing has changed.
HEADWISE_API void save_safetensors(const std::string& path,
                                   const std::vector<std::pair<std::string, ConstTensorView>>& tensors,
                                   const std::map<std::string, std::string>& metadata = {});

// NumPy .npy, versions 1 to 3, little-endian f2, f4, f8, i4, i8, b1; Fortran order is read into row-major.
HEADWISE_API Tensor load_npy(const std::string& path, const FileLimits& limits = {});
HEADWISE_API void save_npy(const std::string& path, const ConstTensorView& tensor);  // bf16 is written as f4

// "FILE" or "FILE:NAME": .npy by its ending, else as TensorFile reads it. NAME may be left out where a file holds one tensor.
// Paths and names may hold colons: FILE is the longest beginning that exists.
HEADWISE_API Tensor load_tensor(const std::string& spec, const FileLimits& limits = {});

// A cache as one safetensors file: the stored bits of what it holds, shared pages once. Loading gives a cache with the same
// config, tokens and sharing, bit for bit; files are written as by save_safetensors, and trusted as little as any.
HEADWISE_API void save_cache(const std::string& path, const KvCache& cache);
HEADWISE_API KvCache load_cache(const std::string& path, const FileLimits& limits = {});

// ---- model directories ------------------------------------------------------------------------------------

struct LayerOptions {
    std::int64_t layer = 0;
    std::string part{};  // which attention of the layer, where there are several: "decoder", "encoder" or
                         // "cross"; "text" or "vision"; "self" or "cross". Empty: the first of these.
    std::optional<DType> dtype{};  // storage of weights, q, k, v and y; default f32
    std::optional<bool> causal{};  // where the family leaves it open; an error where it does not
    FileLimits limits{};
};

// One attention layer as its files have it, before packing (F64 is rounded to f32). Fused tensors are cut, transposed
// ones turned and heads put in order, so that each member is what MhaWeights says; members that a layer lacks are empty.
struct LayerWeights {
    MhaConfig config;
    std::string family;                // "bert", "roberta", "llama"
    std::vector<std::string> tensors;  // the checkpoint names that were used
    Tensor q, k, v, o, q_bias, k_bias, v_bias, o_bias;
    Tensor q_norm, k_norm, q_norm_bias, k_norm_bias;
    Tensor sinks, alibi_slopes, relative_bias, gate, gate_bias, merged_norm;
    Tensor q_down, q_down_bias, q_down_norm, kv_down, kv_down_bias, kv_down_norm, kv_up;
    Tensor router, expert_q, expert_o;
    Tensor lambda_q1, lambda_k1, lambda_q2, lambda_k2;  // made config.difference
    HEADWISE_API MhaWeights weights() const;
};

// Reads config.json and the weights of one layer; docs/models.md lists the families. Errors: unsupported for a family,
// a key of config.json or a tensor of the layer that headwise does not know (the message names it; nothing that might
// change the result is ignored), bad_data for missing tensors and wrong shapes. `directory` may also be a GGUF file, here
// and below: then the same holds for its metadata (docs/gguf.md).
HEADWISE_API LayerWeights load_layer(const std::string& directory, const LayerOptions& options = {});

// load_layer, packed for this CPU.
HEADWISE_API MultiHeadAttention load_attention(const std::string& directory, const LayerOptions& options = {});

// The layers of a model directory whose attention weights are present (a sample may hold only some). Reads `part` and
// `limits` of the options.
HEADWISE_API std::vector<std::int64_t> stored_layers(const std::string& directory,
                                                     const LayerOptions& options = {});

}  // namespace headwise
