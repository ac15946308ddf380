// What changes from multi-head (every query head has its own keys and values) over grouped-query to multi-query
// attention (all share one set): the arithmetic behind the table of `headwise trace`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <headwise/mha.h>

#include "cli/json.h"

namespace headwise::cli {

struct Variant {
    std::string name;  // "MHA", "GQA", "MQA"
    MhaConfig config;  // resolved
    bool traced = false;
    std::int64_t parameters = 0;  // of the four weights, and of the biases that the layer has
    std::int64_t kv_bytes_per_token = 0;
    std::string sharing;  // "0-2 | 3-5 | 6-8": query heads by the kv head that they read
};

// Which of q, k, v, o have a bias.
using Biases = std::array<bool, 4>;

// Whether q, k, v and W_O are single matrices whose heads can be cut and shared at will.
bool has_variants(const MhaConfig& config);

// One row per wished (heads, kv heads), MHA and MQA always among them. An empty wish means the layer's own number of
// heads and, for kv heads, the layer's own or one in between. E and the width of all heads together stay the same.
std::vector<Variant> variants_of(const MhaConfig& traced, const Biases& biases,
                                 std::span<const std::int64_t> heads, std::span<const std::int64_t> kv_heads);

void print_variants(std::span<const Variant> variants, std::int64_t tokens);
Json variants_json(std::span<const Variant> variants, std::int64_t tokens);

}  // namespace headwise::cli
