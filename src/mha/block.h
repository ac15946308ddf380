// The parts of a layer, made once from config and weights.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <headwise/mha.h>

#include "heads/norm.h"
#include "heads/rope.h"
#include "kernels/kernel_table.h"
#include "project/packed_linear.h"

namespace headwise {

// One projection of x or of the sources of k and v: which packed linear computes it, and as which band.
struct Projection {
    std::size_t linear = 0;
    int band = 0;
};

// The second half of a latent layer's projections.
struct LatentPart {
    std::optional<Normalization> q_norm, kv_norm;
    std::optional<PackedLinear> q_up;  // q_rank -> H heads of D; none where q is projected directly
    // kv_rank -> k of every head, each with a gap where the shared key goes, then v of every head: 2H bands. The
    // absorbed form runs its v bands one by one.
    std::optional<PackedLinear> kv_up;
    std::vector<PackedLinear> absorb;  // of each head: nope -> kv_rank, the transposed k rows of kv_up
};

struct RoutedPart {
    std::vector<PackedLinear> q, o;  // of each expert
    Tensor o_bias;                   // f32 [out_dim] or nothing
};

struct Block {
    Block(const MhaConfig& given, const MhaWeights& weights);

    std::int64_t weight_bytes() const noexcept;
    // Keys that every query sees besides those of a call: the extra key, then the zero key.
    std::int64_t appended_keys() const noexcept { return (extra_key.empty() ? 0 : 1) + (config.zero_key ? 1 : 0); }

    MhaConfig config;
    const KernelTable* kernels;
    // Projections of x and of the sources of k and v, in the order: q (or q's latent, or the router's logits), gate, k
    // (or the latent of k and v), v. One linear where they read sources of equal width, else up to three.
    std::vector<PackedLinear> inputs;
    Projection first, gate, k, v;
    std::optional<LatentPart> latent;
    std::optional<RoutedPart> routed;
    std::optional<PackedLinear> output;

    std::optional<Normalization> q_norm, k_norm;
    std::optional<Normalization> merged_norm;        // with its factor in the weight
    std::optional<Rotation> rotation, key_rotation;  // key_rotation: of the key that a latent layer's heads share

    // Small tensors, f32 but for the extra key.
    Tensor sinks;           // [H], with the zero key
    Tensor alibi_slopes;    // [H]
    Tensor distance_table;  // [H,N], see RelativeBias
    Tensor extra_key;       // [G,D] in config.dtype
    Tensor extra_value;     // [H,Dv]: the one that each query head reads

private:
    void make_norms_and_rotations(const MhaWeights& weights);
};

// Throws invalid_argument with the tensor whose shape does not fit the resolved config.
void check_weights(const MhaConfig& config, const MhaWeights& weights);

// T5's bias as a table over t - p; `first` is the distance of its column 0. table [buckets,H] -> [H,N].
Tensor distance_table(const RelativeBias& rule, const ConstTensorView& table, std::int64_t heads);
std::int64_t first_distance(const RelativeBias& rule) noexcept;

}  // namespace headwise
