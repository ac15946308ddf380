// The vocabulary of the table of Hugging Face model families (families/*.cpp): one row per family says where config.json
// keeps the sizes, what the tensors are called and how they lie, and which rules (rules.h) make its attention.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include <headwise/heads.h>

namespace headwise {

class Config;
struct LayerPlan;

// A size in config.json. `keys`: its names, separated by '|' (older files use others). Where the file leaves it out: the
// preset of the model class; where the preset is 0, or the file says null: the usual value (G = H, D = E / H).
struct SizeKey {
    std::string_view keys{};  // '@' stands for the side of an encoder-decoder: "encoder" or "decoder"
    std::int64_t preset = 0;
};
struct Sizes {
    SizeKey embed_dim{}, heads{}, kv_heads{}, head_dim{}, layers{};
    SizeKey decoder_layers{};  // where the decoder of an encoder-decoder may have another number
};

// Something that is there or not: by a key of config.json, or always, or never.
struct Switch {
    std::string_view key{};
    bool preset = false;
};
inline constexpr Switch kAlways{"", true}, kNever{"", false};

// One attention module of a layer. Files call it [base] path, where '#' stands for the number of the layer.
struct Module {
    std::string_view part{};  // LayerOptions::part; empty where a layer has one attention
    std::string_view path{};
    enum class Sees : std::uint8_t {
        past,       // causal
        all,        // both directions
        asked,      // both, unless is_decoder is true or the caller says so
        other_side  // cross attention: all of another sequence
    };
    Sees sees = Sees::past;
    std::string_view section{};  // the object of config.json that describes it; empty: the whole file
};

struct Names {
    std::string_view base{};  // files may leave it out
    std::array<Module, 3> modules{};
    std::string_view q{}, k{}, v{}, o{};
    std::string_view fused{};                  // q, k and v in one tensor, where the layout says so
    std::array<std::string_view, 4> beside{};  // beginnings of names under the module that other stages use
};

// How q, k and v lie in the file.
enum class Layout : std::uint8_t {
    separate,           // a tensor each
    joined,             // one tensor: rows of all q heads, all k heads, all v heads
    joined_in_out,      // the same, stored [in, out] with W_O (Conv1D of GPT-2)
    by_kv_head,         // one tensor: for each kv head the rows of its q heads, then k, then v
    four_blocks_qvk,    // one tensor in four blocks of heads, in each all q, all v, all k (CodeGen)
    query_with_gate,    // separate, and the q tensor holds for each head the rows of q, then those of its gate
    difference_values,  // separate; every head reads two values side by side (DIFF transformer)
    latent,             // low-rank projections (DeepSeek)
    routed,             // k and v joined, q and o by experts (JetMoE)
};

// Rotary positions: the presets of the model class and the names of older files. A theta of 0: no rotation.
struct Rotary {
    Rope::Pairs pairs = Rope::Pairs::half_split;
    double theta = 0;
    double partial = 1;         // rotated share of the head
    double windowed_theta = 0;  // of windowed layers, where it differs
    std::string_view theta_key = "rope_theta", partial_key = "partial_rotary_factor";
    std::string_view windowed_theta_key{};
    bool scale_windowed = true;  // older files: does rope_scaling hold for windowed layers too?
    bool scaled_preset = false;  // the model class scales where the file is silent
    bool fixed_alpha = false;    // dynamic scaling with alpha (HunYuan)
};

// Norm of q and k heads. `norm.eps` is the preset of the model class.
struct QkNorm {
    HeadNorm norm{};
    std::string_view q{}, k{};  // names of the weights, without ".weight"; empty: weightless or no norm at all
    std::string_view eps_key{};
    Switch on = kNever;
    bool bias = false;
    bool weight_per_head = false;  // [heads, D] instead of [D]
    bool tensor_per_head = false;  // [D] each: NAME.norms.0.weight, NAME.norms.1.weight, ...
};

using Rule = void (*)(Config&, LayerPlan&);
using Rules = std::array<Rule, 7>;

// A switch of config.json with the one setting that headwise computes.
struct FixedKey {
    std::string_view key{}, setting{};
};
using KeyList = std::string_view;  // keys separated by blanks

struct Family {
    std::string_view model_type;  // in config.json
    Names names;
    Sizes sizes;
    Layout layout = Layout::separate;
    Switch qkv_bias = kNever, o_bias = kNever;
    Rotary rotary{};
    QkNorm qk_norm{};
    std::int64_t preset_window = 4096;  // where a windowed family's file is silent
    Rules rules{};                      // applied in this order, after sizes and before rotation and norm
    std::array<FixedKey, 6> fixed{};
    KeyList harmless{};  // keys that attention does not depend on, besides those of harmless.h
};

// The rows of families/*.cpp, in the order of docs/models.md.
std::span<const std::span<const Family>> family_tables();

}  // namespace headwise
