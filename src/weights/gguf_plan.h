// What headwise knows about the architectures of GGUF: one row of one table for each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <headwise/mha.h>

#include "weights/gguf_metadata.h"

namespace headwise {

enum class GgufRotation : std::uint8_t { none, half_split, interleaved };  // as q and k rows are stored
enum class GgufNorm : std::uint8_t { none, head, row };                    // RMS with weight w, before rotation
enum class GgufBiases : std::uint8_t { optional, qkv, all };               // which must be there

struct GgufArchitecture {
    std::string_view name;  // general.architecture
    GgufRotation rotation;
    GgufBiases biases = GgufBiases::optional;
    GgufNorm norm = GgufNorm::none;

    // attention.sliding_window: -1 the architecture has none; 0 on all layers; n on all but every n-th.
    std::int64_t full_every = -1;
    std::int64_t default_window = 0;        // where the key is missing; 0: full
    double window_theta = 0;                // theta of windowed layers, which are not scaled; 0: as the others
    std::int64_t unrotated_every = 0;       // every n-th layer has no rotation
    bool unrotated_without_window = false;  // full layers have no rotation
    bool softcap = false;                   // attn_logit_softcapping is obeyed
    double alibi = 0;  // largest bias, for the slopes of ALiBi; 0: attention.max_alibi_bias, if any
    std::int64_t wide_scale_layers = 0;  // the model with so many layers has the scale (E / H)^-1/2
};

// One layer, from the metadata alone.
struct GgufPlan {
    const GgufArchitecture* architecture = nullptr;
    MhaConfig config;
    std::int64_t layers = 0;
    bool rotates = false;
    bool windowed = false;
    double alibi = 0;                   // largest bias; 0: none
    std::int64_t original_context = 0;  // of longrope: positions up to it use the short factors
    double rope_magnitude = 1;          // of longrope: multiplies cos and sin
};

// Throws Error unsupported for an architecture or a setting that headwise does not have, bad_data for values that
// contradict each other, invalid_argument if the layer does not exist or `causal` is refused.
GgufPlan plan_gguf(const GgufFile& file, std::int64_t layer, std::optional<bool> causal);

}  // namespace headwise
