#include "mha/cached.h"

#include <algorithm>

#include "core/check.h"
#include "core/dtype.h"
#include "core/storage.h"
#include "mha/latent.h"
#include "mha/widths.h"

namespace headwise {
KvCacheConfig cache_config(const MhaConfig& given, const KvCacheConfig& wish) {
    const MhaConfig c = resolve(given);
    KvCacheConfig config = wish;
    config.kv_heads = c.latent ? 1 : c.kv_heads;
    config.key_dim = c.latent ? latent_width(c) : c.head_dim;
    config.value_dim = c.latent ? c.latent->kv_rank : c.value_dim;
    config.value_in_key = c.latent.has_value();
    return config;
}

void check_cache(const MhaConfig&, const Call&) {
    fail(ErrorCode::invalid_argument, "forward: this version reads no cache yet; leave it out");
}

// Never reached before caches are.
std::int64_t keys_after(const Call&) { return 0; }
std::int64_t cache_offset(const Call&, std::int64_t) { return 0; }

}  // namespace headwise
