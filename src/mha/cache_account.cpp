#include "mha/cache_account.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "core/check.h"
#include "heads/kv_blocks.h"
#include "mha/widths.h"

namespace headwise {
namespace {

std::string_view name_of(CacheKind kind) {
    return kind == CacheKind::ring ? "ring" : kind == CacheKind::paged ? "paged" : "contiguous";
}

std::string_view name_of(CacheType type) {
    switch (type) {
        case CacheType::f32:
            return "f32";
        case CacheType::bf16:
            return "bf16";
        case CacheType::f16:
            return "f16";
        case CacheType::int8:
            return "int8";
        case CacheType::int4:
            return "int4";
    }
    return "";
}

CacheType type_of(DType dtype) {
    return dtype == DType::bf16 ? CacheType::bf16 : dtype == DType::f16 ? CacheType::f16 : CacheType::f32;
}

// Of one row of `width` numbers, scales included.
std::int64_t row_size(CacheType type, std::int64_t width, std::int64_t scale_group) {
    const std::int64_t group = scale_group > 0 ? scale_group : std::max<std::int64_t>(1, width);
    return row_bytes(type, width, group) +
           row_scales(type, width, group) * static_cast<std::int64_t>(sizeof(float));
}

std::string times(std::int64_t a, std::int64_t b) {
    std::ostringstream stream;
    stream << std::fixed << std::setprecision(1) << static_cast<double>(a) / static_cast<double>(b);
    return stream.str();
}

std::string sentence(const MhaConfig& c, const CacheAccount& account) {
    std::string note = c.latent
                           ? text("one latent of ", c.latent->kv_rank, " + ", c.latent->rope_dim, " numbers: ")
                           : text(c.kv_heads, c.kv_heads == 1 ? " kv head" : " kv heads", " of ", c.head_dim,
                                  " and ", c.value_dim, ": ");
    note += text(account.token_bytes, " B a token");
    if (account.token_bytes > 0 && account.multi_head_token_bytes != account.token_bytes) {
        note += text("; a key and a value for each of the ", c.heads, " query heads would take ",
                     account.multi_head_token_bytes, " B, ",
                     times(account.multi_head_token_bytes, account.token_bytes), " times as much");
    }
    if (account.window > 0) {
        note += text("; rows see at most ", account.window, " keys, so a ring holds ",
                     account.window * account.token_bytes, " B for a sequence of any length");
    }
    return note;
}

}  // namespace

CacheAccount cache_account(const MhaConfig& c, const KvCache* cache) {
    const KvCacheConfig one =
        cache_config(c, cache == nullptr ? KvCacheConfig{.type = type_of(c.dtype)} : cache->config());
    CacheAccount account;
    account.kind = cache == nullptr ? "none" : name_of(one.kind);
    account.type = name_of(one.type);
    if (cache != nullptr) account.held_bytes = cache->bytes(), account.length = cache->longest();
    const auto row = [&](std::int64_t width) { return row_size(one.type, width, one.scale_group); };
    account.token_bytes = one.kv_heads * (row(one.key_dim) + (one.value_in_key ? 0 : row(one.value_dim)));
    account.multi_head_token_bytes = c.heads * (row(c.head_dim) + row(c.value_dim));
    if (c.mask.window_left >= 0) account.window = c.mask.window_left + 1 + c.mask.keep_first;
    if (c.mask.chunk > 0)
        account.window = account.window > 0 ? std::min(account.window, c.mask.chunk) : c.mask.chunk;
    account.note = sentence(c, account);
    return account;
}

}  // namespace headwise
