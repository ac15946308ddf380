// The whole block, stages 1 to 5: x -> q,k,v projection -> heads -> norm, rope, cache -> attend -> W_O -> y.
#pragma once

#include <cstdint>
#include <memory>

#include <headwise/attend.h>
#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/kv_cache.h>
#include <headwise/mha_config.h>
#include <headwise/scores.h>
#include <headwise/tensor.h>

namespace headwise {

enum class CacheUse : std::uint8_t {
    append,  // the keys of this call are appended, then attended together with what was there
    read,    // no key is projected or appended: queries attend to what the cache holds (decoder over encoder)
};

// Per call. Everything may be left out.
struct ForwardOptions {
    ConstTensorView key{};    // [B,S,key_embed_dim] source of k; empty: x (self attention)
    ConstTensorView value{};  // [B,S,value_embed_dim] source of v; empty: the source of k
    Mask mask{};              // intersected with the config's; with a cache its axis S is the longest length
    Positions positions{};    // where query rows stand, for the mask; a cache brings its own offsets
    ConstTensorView
        rope_positions{};  // i32 or i64 [B,T] (or [T]): rotation of q and k; empty: i + length of the cache (with
                           // CacheUse::read the last row stands at the last key)
    RopeTables rope_tables{};  // instead of the formula
    KvCache* cache = nullptr;  // make it with make_cache()
    CacheUse cache_use = CacheUse::append;
    ConstTensorView
        counts{};  // i32 or i64 [B]: real tokens of each sequence (of the key source, where there is one); rows
                   // beyond are neither appended nor attended, their y is unspecified
    Dropout dropout{};
    TensorView lse{};        // optional [B,H,T] f32, see AttendOutputs
    ScoreRequest scores{};   // what to write to scores_to, by a second pass
    TensorView scores_to{};  // optional [B,heads,rows,S'] f32: S keys, then the extra key and the zero key
    Execution execution{};
};

class MultiHeadAttention;
struct Trace;  // <headwise/trace.h>
HEADWISE_API Trace trace(const MultiHeadAttention& block, const ConstTensorView& x, const ForwardOptions& options);

// Weights are packed once, for the ISA in force at construction, and are the only copy. Immutable afterwards:
// forward() may run on several threads at once. Repeated calls of the same shapes allocate nothing.
class HEADWISE_API MultiHeadAttention {
public:
    MultiHeadAttention(const MhaConfig& config, const MhaWeights& weights);
    ~MultiHeadAttention();
    MultiHeadAttention(MultiHeadAttention&&) noexcept;
    MultiHeadAttention& operator=(MultiHeadAttention&&) noexcept;

    const MhaConfig& config() const noexcept;    // resolved
    std::int64_t weight_bytes() const noexcept;  // packed, padding included

    // x [B,T,E] or [T,E], f32, bf16 or f16, innermost stride 1 -> y of the same rank [B,T,out_dim].
    // Throws invalid_argument on shapes that do not fit, before any memory is touched.
    Tensor forward(const ConstTensorView& x, const ForwardOptions& options = {}) const;  // y in config().dtype
    void forward(const ConstTensorView& x, const TensorView& y, const ForwardOptions& options = {}) const;

private:
    friend Trace trace(const MultiHeadAttention&, const ConstTensorView&, const ForwardOptions&);
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// A cache that fits the layer: `wish` says batch, capacity, kind, type and pages; widths come from the config (and a
// latent layer keeps its latent).
HEADWISE_API KvCache make_cache(const MhaConfig& config, const KvCacheConfig& wish);

}  // namespace headwise
