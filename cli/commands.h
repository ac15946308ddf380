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
    std::string model;  // directory; empty: none
    std::int64_t layer = 0;
    std::optional<DType> dtype;
    std::optional<bool> causal;
};

struct RunOptions {
    Machine machine;
    LayerChoice layer;
    std::string input;      // FILE[:NAME]
    std::string positions;  // "0,1,2" or FILE:NAME; empty: none
    std::string lengths;    // as positions
    std::string out;        // .npy or .safetensors; empty: none
    std::string check;      // FILE[:NAME] of the expected output; empty: no check
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
