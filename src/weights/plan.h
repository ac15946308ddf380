// What a config.json says about one attention layer of its model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <headwise/weights.h>

#include "weights/families.h"
#include "weights/json.h"

namespace headwise {

enum class LayerKind : std::uint8_t { full, windowed, chunked, other };  // other: no softmax attention

// A tensor of the file that becomes one of LayerWeights as it is.
struct PlannedTensor {
    std::string name;  // under the module, with ".weight" if it has one
    std::vector<std::int64_t> shape;
    Tensor LayerWeights::*to = nullptr;
    bool outside = false;    // `name` counts from the base, not from the module
    std::int64_t stack = 0;  // > 0: so many tensors [shape] become one [stack, shape]; '#' counts them
};

// A weight of the file, with the same rows of a bias where it has one.
struct PlannedMatrix {
    std::string_view name;
    std::int64_t rows = 0, columns = 0;
    bool bias = false;
    bool in_out = false;  // stored [columns, rows]
};

// lambda = exp(q1.k1) - exp(q2.k2) + initial, from four vectors of the file.
struct DifferenceRule {
    double initial = 0;
};

struct LayerPlan {
    const Family* family = nullptr;
    const Module* module = nullptr;
    std::int64_t layer = 0;
    std::int64_t layers = 0;   // of this stack
    std::int64_t repeats = 1;  // so many layers share one stored layer (ALBERT)
    LayerKind kind = LayerKind::full;
    std::string kind_name = "full_attention";  // as layer_types spells it
    bool kind_given = false;                   // by layer_types
    bool kind_used = false;                    // by a rule that knows what windows or chunks mean in this family
    MhaConfig config;
    Layout layout = Layout::separate;
    bool q_bias = false, k_bias = false, v_bias = false, o_bias = false;
    bool kv_down_bias = false;  // latent
    bool rotates = true;        // where the family does
    bool rotates_backwards = false;
    std::int64_t rotary_width = 0;     // 0: by the partial factor
    std::optional<Rope::Pairs> pairs;  // instead of the family's
    bool normalises = true;
    double alibi_scale = 0;   // 0: no ALiBi; else slopes are multiplied by it
    bool alibi_bf16 = false;  // slopes are rounded to bf16 first
    std::optional<DifferenceRule> difference;
    std::vector<PlannedMatrix> matrices;
    std::vector<PlannedTensor> tensors;
};

struct PlanRequest {
    std::int64_t layer = 0;
    std::string_view part{};
    std::optional<bool> causal{};
};

// Throws Error unsupported for a family, a key or a setting that headwise does not have, bad_data for values that
// contradict each other, and invalid_argument where the request asks for what the model does not have.
LayerPlan plan_layer(const Json& config, const std::string& where, const PlanRequest& request);

// Products of sizes that a row or a matrix of weights has: bad_data beyond 2^31, which MhaConfig refuses too.
std::int64_t checked_rows(const std::string& where, std::int64_t heads, std::int64_t width);

}  // namespace headwise
