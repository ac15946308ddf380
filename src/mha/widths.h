// Widths that follow from a resolved config.
#pragma once

#include <headwise/kv_cache.h>
#include <headwise/mha_config.h>

namespace headwise {

// The row that W_O reads, H*Dv or half of it.
inline std::int64_t merged_heads(const MhaConfig& c) noexcept { return c.difference ? c.heads / 2 : c.heads; }
inline std::int64_t merged_width(const MhaConfig& c) noexcept { return merged_heads(c) * c.value_dim; }

// Columns of the gate's projection; 0 without a gate.
inline std::int64_t gate_width(const MhaConfig& c) noexcept {
    return c.gate == Gate::none ? 0 : c.gate == Gate::head ? c.heads : c.heads * c.value_dim;
}

inline std::int64_t nope_width(const MhaConfig& c) noexcept { return c.head_dim - c.latent->rope_dim; }
// Of the one key that all heads of a latent layer share in the absorbed form: the latent, then the rotated part.
inline std::int64_t latent_width(const MhaConfig& c) noexcept { return c.latent->kv_rank + c.latent->rope_dim; }

// What the projection of x to q (or to what q is made from) has for rows.
inline std::int64_t first_width(const MhaConfig& c) noexcept {
    if (c.routing) return c.routing->experts;
    return c.latent && c.latent->q_rank > 0 ? c.latent->q_rank : c.heads * c.head_dim;
}

// `wish` with the widths of the layer.
KvCacheConfig cache_config(const MhaConfig& config, const KvCacheConfig& wish);

}  // namespace headwise
