// What a layer keeps of every token, for trace().
#pragma once

#include <headwise/trace.h>

namespace headwise {

// `config` is resolved; `cache` may be null.
CacheAccount cache_account(const MhaConfig& config, const KvCache* cache);

}  // namespace headwise
