// The commands of `headwise`: plain options in, exit code out. main.cpp fills the options from the command line and
// turns exceptions into exit codes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headwise/tensor.h>

namespace headwise::cli {

enum class Exit : int {
    done = 0,
    check_failed = 1,
    wrong_use = 2,  // flags, an ISA that is not there
    bad_data = 3,   // missing, unreadable, hostile or unsupported files
    our_fault = 4,
};

struct Machine {
    std::string isa;  // "": the library's choice
    int threads = 0;  // 0: the library's choice
};

// Makes the choice and throws if it cannot be had.
void apply(const Machine& machine);

struct LayerChoice {
    std::string model;  // directory or .gguf file; empty: none
    std::int64_t layer = 0;
    std::string part;  // which attention of the layer, where there are several; empty: the usual one
    std::optional<DType> dtype;
    std::optional<bool> causal;
};

// In every FILE of a run over several layers "{layer}" stands for the layer's number.
struct RunOptions {
    Machine machine;
    LayerChoice layer;
    std::string layers;                        // "0,8,16", "2-5" or "all"; empty: layer.layer alone
    std::string input;                         // FILE[:NAME]
    std::string key;                           // FILE[:NAME], source of keys and values; empty: x
    std::string positions;                     // "0,1,2" or FILE:NAME; empty: none
    std::string lengths;                       // as positions
    std::string cache;                         // "contiguous", "ring" or "paged"; empty: none
    std::string cache_type;                    // "f32", "bf16", "f16", "int8", "int4"; empty: f32
    std::int64_t page_size = 0, capacity = 0;  // 0: the library's choice, the number of tokens
    std::int64_t decode = 0;                   // the last tokens that are given one at a time, after the others
    std::string out;                           // .npy or .safetensors; empty: none
    std::string weights_out;                   // likewise, [B,H,T,S]
    std::string scores;  // what weights_out holds: "raw", "capped", "masked" or "weights"; empty: weights
    std::string check;   // FILE[:NAME] of the expected output; empty: no check
    std::optional<double> tolerance;
    int repeat = 1;
    bool json = false;
};
Exit run(const RunOptions& options);

struct TraceOptions {
    Machine machine;
    LayerChoice layer;
    std::string input;                   // FILE[:NAME]; empty: random numbers
    std::int64_t tokens = 0;             // of the random input; 0: 8
    std::int64_t context = 0;            // tokens of the cache table; 0: those of the input
    std::int64_t window = 0;             // without a model: keys that a query sees, itself included; 0: all
    std::int64_t embed = 0;              // without a model: the shape of a layer with random weights
    std::int64_t head_dim = 0;           // 0: embed / heads
    std::vector<std::int64_t> heads;     // first = the traced one, all = rows of the comparison
    std::vector<std::int64_t> kv_heads;  // likewise
    bool json = false;
};
Exit trace(const TraceOptions& options);

struct ExampleOptions {
    Machine machine;
    bool json = false;
};
Exit example(const ExampleOptions& options);

struct InfoOptions {
    Machine machine;
    bool json = false;
};
Exit info(const InfoOptions& options);

}  // namespace headwise::cli
