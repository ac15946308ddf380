// One point of a model case, loaded.
#pragma once

#include <cstdint>
#include <vector>

#include <headwise/mha.h>

#include "conformance/judge.h"

namespace headwise::conformance {

struct ModelPoint {
    const MultiHeadAttention* block = nullptr;
    ConstTensorView x{}, kv{}, expected{};  // kv: only for cross attention
    ForwardOptions options{};               // without cache and key
    std::vector<double> bounds{};
    std::vector<std::int64_t> split{};  // lengths of the pieces; empty: none
};

// Adds a result for each kind of cache that fits the layer.
void judge_split(const ModelPoint& point, std::vector<OutputResult>& results);

}  // namespace headwise::conformance
