// Sequences of a cache that become shorter, change places or go two ways.
#include <algorithm>
#include <cstring>
#include <utility>

#include "heads/kv_cache.h"

namespace headwise {
namespace {

// Every sequence takes the block of what it becomes; where several become the same, all but one copy it into the blocks
// that nobody becomes. Never needs another block.
void reorder_blocks(KvCache::Impl& cache, const std::vector<std::int64_t>& from) {
    const std::size_t B = from.size();
    std::vector<std::int32_t> next(B), free;
    std::vector<bool> wanted(B, false), taken(B, false), copied(B, false);
    free.reserve(B);
    for (const std::int64_t source : from) wanted[static_cast<std::size_t>(source)] = true;
    for (std::size_t b = 0; b < B; ++b) {
        if (!wanted[b]) free.push_back(cache.table[b]);
    }
    for (std::size_t b = 0; b < B; ++b) {
        const auto source = static_cast<std::size_t>(from[b]);
        copied[b] = taken[source];
        taken[source] = true;
        next[b] = cache.table[source];
    }
    for (std::size_t b = 0; b < B; ++b) {
        if (!copied[b]) continue;
        const std::int64_t rows = std::min(cache.at(from[b]).length, cache.config.capacity);
        copy_rows({cache, next[b]}, {cache, free.back()}, rows);
        next[b] = free.back();
        free.pop_back();
    }
    cache.table.swap(next);
}

void reorder_pages(KvCache::Impl& cache, const std::vector<std::int64_t>& from) {
    const std::vector<std::int32_t> old = cache.table;
    const auto for_pages = [&](std::int64_t b, auto body) {
        const std::int64_t first = b * cache.layout.blocks_per_sequence;
        for (std::int64_t n = 0; n < cache.blocks_for(cache.at(b).length); ++n) {
            body(n, old[static_cast<std::size_t>(first + n)]);
        }
    };
    for (std::size_t b = 0; b < from.size(); ++b) {
        for_pages(from[b], [&](std::int64_t n, std::int32_t page) {
            cache.pool->share(page);
            cache.blocks_of(static_cast<std::int64_t>(b))[n] = page;
        });
    }
    for (std::int64_t b = 0; b < cache.config.batch; ++b) {
        for_pages(b, [&](std::int64_t, std::int32_t page) { cache.pool->release(page); });
    }
}

}  // namespace

void copy_rows(const CacheBlock& from, const CacheBlock& to, std::int64_t count) noexcept {
    const auto copy = [](void* target, const void* source, std::int64_t bytes) {
        if (bytes > 0) std::memcpy(target, source, static_cast<std::size_t>(bytes));
    };
    const BlockLayout& layout = from.cache.layout;
    for (std::int64_t g = 0; g < layout.G; ++g) {
        const CacheRows source = from.cache.rows_of_block(from.id, g, 0);
        const CacheRows target = to.cache.rows_of_block(to.id, g, 0);
        copy(target.keys, source.keys, count * layout.key_row);
        copy(target.key_scales, source.key_scales, 4 * count * layout.key_scales);
        if (from.cache.config.value_in_key) continue;
        copy(target.values, source.values, count * layout.value_row);
        copy(target.value_scales, source.value_scales, 4 * count * layout.value_scales);
    }
}

void KvCache::Impl::truncate(std::int64_t b, std::int64_t length) {
    Sequence& sequence = at(b);
    check(length >= 0 && length <= sequence.length, "KvCache::truncate: length ", length, " of sequence ", b,
          ", which holds ", sequence.length, "; it can only become shorter");
    const bool only_kept = length <= config.keep_first;
    check(length >= sequence.first || only_kept, "KvCache::truncate: length ", length, " of sequence ", b,
          ", whose keys below ", sequence.first,
          " the ring has overwritten; make it larger by what is rolled back");
    for (std::int64_t n = blocks_for(length); n < blocks_for(sequence.length); ++n) {
        pool->release(blocks_of(b)[n]);
    }
    sequence.length = length;
    if (only_kept) sequence.first = 0;
}

void KvCache::Impl::reorder(const std::vector<std::int64_t>& from) {
    check(static_cast<std::int64_t>(from.size()) == config.batch, "KvCache::reorder: ", from.size(),
          " entries for ", config.batch, " sequences; name the one that each becomes");
    std::vector<Sequence> next;
    next.reserve(from.size());
    for (const std::int64_t b : from) next.push_back(at(b));
    config.kind == CacheKind::paged ? reorder_pages(*this, from) : reorder_blocks(*this, from);
    sequences.swap(next);
}

std::unique_ptr<KvCache::Impl> KvCache::Impl::fork() const {
    const bool paged = config.kind == CacheKind::paged;
    auto copy = std::make_unique<Impl>(config, paged ? pool : nullptr);
    for (std::int64_t b = 0; b < config.batch; ++b) {
        if (!paged) {
            const std::int64_t rows = std::min(at(b).length, config.capacity);
            copy_rows({*this, *blocks_of(b)}, {*copy, *copy->blocks_of(b)}, rows);
        }
        for (std::int64_t n = 0; paged && n < blocks_for(at(b).length); ++n) {
            copy->blocks_of(b)[n] = blocks_of(b)[n];
            pool->share(blocks_of(b)[n]);
        }
        copy->at(b) = at(b);
    }
    return copy;
}

}  // namespace headwise
