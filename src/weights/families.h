// What headwise knows about Hugging Face model families: one row of one table per family.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <headwise/mha.h>

#include "weights/json.h"

namespace headwise {

enum class BiasRule { always, attention_bias };  // on q, k, v and o; by the key of that name, default false
enum class CausalRule { always, unless_asked };  // unless_asked: by the key is_decoder, or as the caller says
enum class RotationRule { none, half_split };    // none: positions are added to x before the block
enum class HeadRule { equal, grouped };          // grouped: keys num_key_value_heads and head_dim may be given

// A switch of config.json, with the one setting that headwise computes.
struct FixedKey {
    std::string_view key, setting;
};

struct Family {
    std::string_view model_type;  // in config.json

    // Checkpoint names: [base] module q|k|v|o ".weight" | ".bias", where '#' stands for the number of the layer.
    std::string_view base;  // files may leave it out
    std::string_view module;
    std::string_view q, k, v, o;
    std::span<const std::string_view> beside;  // beginnings of names under `module` that other stages use

    HeadRule heads;
    BiasRule bias;
    CausalRule causal;
    RotationRule rotation;

    std::int64_t default_embed_dim, default_heads, default_layers;  // where config.json leaves them out
    std::span<const FixedKey> fixed;
    std::span<const std::string_view> harmless;  // keys that attention does not depend on
};

// What a config.json says about every attention layer of its model.
struct ModelPlan {
    const Family* family = nullptr;
    MhaConfig config;
    bool biases = false;
    std::int64_t layers = 0;
};

// Throws Error unsupported for a family or a key that headwise does not have, bad_data for values that contradict
// each other, and invalid_argument if `causal` asks for what the family does not leave open.
ModelPlan plan_model(const Json& config, const std::string& where, std::optional<bool> causal);

}  // namespace headwise
