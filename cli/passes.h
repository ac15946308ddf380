// One layer over an input: in one go, or as an engine would run it, a prefill and then single tokens with a cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <headwise/mha.h>

namespace headwise::cli {

struct Passes {
    ConstTensorView x{};          // [B,T,E]
    ConstTensorView key{};        // [B,S,key_embed_dim]; empty: x
    ConstTensorView positions{};  // i64 [T] or [B,T]; may be empty
    ConstTensorView lengths{};    // i64 [B]; may be empty
    std::optional<KvCacheConfig> cache{};
    std::int64_t decode = 0;  // tokens that come one at a time; needs a cache
    ScoreKind scores = ScoreKind::weights;
    TensorView scores_to{};  // [B,H,T,S] of zeros; may be empty
};

struct PassTimes {
    double all_ms = 0;
    double prefill_ms = 0;          // with a cache: what comes before the single tokens
    std::vector<double> step_ms{};  // of each single token
    std::int64_t cache_bytes = 0;
};

// Writes y [B,T,out_dim].
PassTimes run_passes(const MultiHeadAttention& block, const Passes& passes, const TensorView& y);

// The number of keys that the last query can see at most: S of scores_to.
std::int64_t keys_of(const Passes& passes) noexcept;

}  // namespace headwise::cli
