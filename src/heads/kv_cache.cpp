// The face of a cache: made, asked, cleared. Appending is in kv_append.cpp, sharing and going back in kv_share.cpp.
#include "heads/kv_cache.h"

#include <algorithm>

#include "core/storage.h"
#include "kernels/dispatch.h"

namespace headwise {
namespace {

std::int64_t blocks_of_pool(const KvCacheConfig& config, const BlockLayout& layout) {
    if (config.kind != CacheKind::paged) return config.batch;
    return config.pages > 0 ? config.pages
                            : checked_multiply(config.batch, layout.blocks_per_sequence, "KvCache: pages");
}

void check_sequence(const KvCache::Impl& cache, std::int64_t b, const char* where) {
    check(b >= 0 && b < cache.config.batch, "KvCache::", where, ": sequence ", b, " of ", cache.config.batch);
}

struct HeldRange {
    std::int64_t begin, end;
};

// The rows of keys or values that a sequence holds, as f32.
Tensor load_rows(const KvCache::Impl& cache, std::int64_t b, HeldRange range, bool values) {
    const KvCacheConfig& c = cache.config;
    const RowFormat format{c.type, values ? c.value_dim : c.key_dim, cache.layout.group};
    Tensor to(DType::f32, {range.end - range.begin, c.kv_heads, format.width});
    for (std::int64_t key = range.begin; key < range.end; ++key) {
        for (std::int64_t g = 0; g < c.kv_heads; ++g) {
            const CacheRows rows = cache.rows_at(b, g, key);
            load_row(kernels(), format, values ? rows.values : rows.keys,
                     values ? rows.value_scales : rows.key_scales,
                     to.data<float>() + ((key - range.begin) * c.kv_heads + g) * format.width);
        }
    }
    return to;
}

HeldRange check_range(const KvCache::Impl& cache, std::int64_t b, std::int64_t first, std::int64_t count,
                      const char* where) {
    check_sequence(cache, b, where);
    const KvCache::Impl::Sequence& sequence = cache.at(b);
    check(first >= 0 && count >= 0 && first <= sequence.length && count <= sequence.length - first,
          "KvCache::", where, ": ", count, " keys from ", first, " on of sequence ", b, ", which holds ",
          sequence.length);
    const std::int64_t kept = cache.config.keep_first;
    check(count == 0 || first >= sequence.first || first + count <= kept, "KvCache::", where, ": key ",
          std::max(first, kept), " of sequence ", b, " is overwritten; the ring holds keys from ", sequence.first,
          " on", kept > 0 ? text(", and the first ", kept) : "");
    return {first, first + count};
}

}  // namespace

KvCache::Impl::Impl(const KvCacheConfig& given, std::shared_ptr<BlockPool> shared)
    : config(given), layout(given), pool(std::move(shared)), sequences(static_cast<std::size_t>(config.batch)) {
    const std::int64_t entries = checked_multiply(config.batch, layout.blocks_per_sequence, "KvCache: pages");
    // The pool first: it refuses what no memory can hold before the table is filled.
    if (pool == nullptr) pool = std::make_shared<BlockPool>(blocks_of_pool(config, layout), layout.bytes);
    table.resize(static_cast<std::size_t>(entries));
    if (config.kind != CacheKind::paged) {
        pool->take(table);
    } else {
        taken.reserve(static_cast<std::size_t>(std::min(entries, pool->count()) + config.batch));
    }
}

KvCache::Impl::~Impl() {
    for (std::int64_t b = 0; b < config.batch; ++b) {
        for (std::int64_t n = 0; n < blocks_for(at(b).length); ++n) pool->release(blocks_of(b)[n]);
    }
}

KvCache::KvCache(const KvCacheConfig& config)
    : impl_(with_memory([&] { return std::make_unique<Impl>(config); })) {}
KvCache::KvCache(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

const KvCacheConfig& KvCache::config() const noexcept { return impl_->config; }

std::int64_t KvCache::length(std::int64_t b) const {
    check_sequence(*impl_, b, "length");
    return impl_->at(b).length;
}

std::int64_t KvCache::first_key(std::int64_t b) const {
    check_sequence(*impl_, b, "first_key");
    return impl_->at(b).first;
}

std::int64_t KvCache::longest() const noexcept {
    std::int64_t longest = 0;
    for (const Impl::Sequence& sequence : impl_->sequences) longest = std::max(longest, sequence.length);
    return longest;
}

std::int64_t KvCache::bytes() const noexcept { return impl_->pool->bytes(); }

std::int64_t KvCache::free_pages() const noexcept {
    return impl_->config.kind == CacheKind::paged ? impl_->pool->free_blocks() : 0;
}

void KvCache::append(const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& counts,
                     const Execution& execution) {
    impl_->append(kernels(), k, v, counts, execution);
}

void KvCache::truncate(std::int64_t b, std::int64_t length) {
    check_sequence(*impl_, b, "truncate");
    impl_->truncate(b, length);
}

void KvCache::clear() {
    for (std::int64_t b = 0; b < impl_->config.batch; ++b) impl_->truncate(b, 0);
}

void KvCache::reorder(const std::vector<std::int64_t>& from) {
    for (const std::int64_t b : from) check_sequence(*impl_, b, "reorder");
    with_memory([&] { return impl_->reorder(from), 0; });
}

KvCache KvCache::fork() const {
    return KvCache(with_memory([&] { return impl_->fork(); }));
}

Tensor KvCache::keys(std::int64_t b, std::int64_t first, std::int64_t count) const {
    return load_rows(*impl_, b, check_range(*impl_, b, first, count, "keys"), false);
}

Tensor KvCache::values(std::int64_t b, std::int64_t first, std::int64_t count) const {
    return load_rows(*impl_, b, check_range(*impl_, b, first, count, "values"), true);
}

}  // namespace headwise
