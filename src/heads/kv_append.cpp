// Appending to a cache: everything that can fail comes before the first byte is written.
#include <algorithm>

#include "core/check.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "heads/kv_cache.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

void check_tokens(const ConstTensorView& view, const KvCacheConfig& c, std::int64_t width, const char* name) {
    check(view.rank == 4 && view.size(0) == c.batch && view.size(1) >= 0 && view.size(2) == c.kv_heads &&
              view.size(3) == width,
          "KvCache::append: ", name, " is ", view, " but must be [B,T,G,", name[0] == 'k' ? "D" : "Dv", "] = [",
          c.batch, ", T, ", c.kv_heads, ", ", width, "], as the cache was made");
    check(has_storage(view.dtype), "KvCache::append: ", name, " is ", view, " but must be f32, bf16 or f16");
    check(view.size(3) <= 1 || view.stride(3) == 1, "KvCache::append: ", name, " is ", view,
          "; its innermost stride must be 1 (other strides are free)");
    check(view.count() == 0 || view.data != nullptr, "KvCache::append: ", name, " is ", view,
          " at a null address");
}

void check_arguments(const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& counts,
                     const KvCacheConfig& c) {
    check_tokens(k, c, c.key_dim, "k");
    if (c.value_in_key) {
        check(v.empty(), "KvCache::append: v is ", v,
              ", but the values of this cache are the first columns of its keys; leave it out");
    } else {
        check_tokens(v, c, c.value_dim, "v");
        check(v.size(1) == k.size(1), "KvCache::append: k is ", k, " and v is ", v,
              "; both must have the same number of tokens");
    }
    if (counts.empty()) return;
    check(counts.rank == 1 && counts.size(0) == c.batch &&
              (counts.dtype == DType::i32 || counts.dtype == DType::i64),
          "KvCache::append: counts is ", counts, " but must be i32 or i64 [B] = [", c.batch, "]");
    for (std::int64_t b = 0; b < c.batch; ++b) {
        const std::int64_t count = integer_at(counts, b);
        check(count >= 0 && count <= k.size(1), "KvCache::append: counts[", b, "] is ", count,
              " but must be between 0 and T = ", k.size(1));
    }
}

const void* token(const ConstTensorView& view, std::int64_t b, std::int64_t t, std::int64_t g) noexcept {
    const std::int64_t at = b * view.stride(0) + t * view.stride(1) + g * view.stride(2);
    return static_cast<const std::byte*>(view.data) + at * static_cast<std::int64_t>(size_of(view.dtype));
}

class Append {
public:
    Append(KvCache::Impl& cache, const ConstTensorView& k, const ConstTensorView& v,
           const ConstTensorView& counts) noexcept
        : cache_(cache), config_(cache.config), k_(k), v_(v), counts_(counts) {}

    std::int64_t count(std::int64_t b) const noexcept {
        return counts_.empty() ? k_.size(1) : integer_at(counts_, b);
    }

    // Throws cache_full with nothing changed, or leaves every sequence with blocks of its own for the new rows.
    void make_room() {
        std::size_t needed = 0;
        for (std::int64_t b = 0; b < config_.batch; ++b) {
            const std::int64_t length = cache_.at(b).length, added = count(b);
            std::int64_t sum = 0;
            const bool fits = !__builtin_add_overflow(length, added, &sum) &&
                              (config_.kind == CacheKind::ring || sum <= config_.capacity);
            if (!fits) {
                fail(ErrorCode::cache_full, "KvCache::append: ", added, " tokens for sequence ", b,
                     ", which holds ", length, " of ", config_.capacity,
                     "; truncate it, or make the cache larger. Nothing was changed");
            }
            if (config_.kind == CacheKind::paged) needed += pages_needed(b);
        }
        if (needed == 0) return;
        cache_.taken.resize(needed);  // within what it was reserved with
        if (!cache_.pool->take(cache_.taken)) {
            fail(ErrorCode::cache_full, "KvCache::append: ", needed, " new pages are needed but the pool has ",
                 cache_.pool->free_blocks(), " free of ", cache_.pool->count(),
                 "; free other sequences, or give the pool more pages. Nothing was changed");
        }
        for (std::int64_t b = 0; b < config_.batch; ++b) give_pages(b);
        // A fork on another thread may have let go of a page since it was counted.
        while (used_ < needed) cache_.pool->release(next());
    }

    void write(const KernelTable& kernels, std::int64_t b, std::int64_t g, float* wide) const noexcept {
        const std::int64_t length = cache_.at(b).length, added = count(b);
        const RowFormat key{config_.type, config_.key_dim, cache_.layout.group};
        const RowFormat value{config_.type, config_.value_dim, cache_.layout.group};
        for (std::int64_t t = 0; t < added; ++t) {
            if (overwritten_at_once(length, added, t)) continue;
            const CacheRows rows = cache_.rows_at(b, g, length + t);
            store_row(kernels, key, rows.keys, rows.key_scales, token(k_, b, t, g), k_.dtype, wide);
            if (config_.value_in_key) continue;
            store_row(kernels, value, rows.values, rows.value_scales, token(v_, b, t, g), v_.dtype, wide);
        }
    }

    void commit() noexcept {
        for (std::int64_t b = 0; b < config_.batch; ++b) {
            KvCache::Impl::Sequence& sequence = cache_.at(b);
            sequence.length += count(b);
            if (config_.kind == CacheKind::ring && sequence.length > config_.capacity) {
                const std::int64_t newest = config_.capacity - config_.keep_first;
                sequence.first = std::max(sequence.first, sequence.length - newest);
            }
        }
    }

private:
    // The last page of a sequence, where rows are added to it but others hold it too.
    bool must_copy(std::int64_t b) const {
        const std::int64_t length = cache_.at(b).length;
        return count(b) > 0 && length % cache_.layout.rows != 0 &&
               cache_.pool->holders(cache_.blocks_of(b)[length / cache_.layout.rows]) > 1;
    }
    // The same where the sequences before b have let go of that page: the last holder keeps it.
    bool will_copy(std::int64_t b) const {
        if (!must_copy(b)) return false;
        const auto last_page = [&](std::int64_t sequence) {
            return cache_.blocks_of(sequence)[cache_.at(sequence).length / cache_.layout.rows];
        };
        std::int64_t gone = 0;
        for (std::int64_t before = 0; before < b; ++before) {
            if (must_copy(before) && last_page(before) == last_page(b)) ++gone;
        }
        return cache_.pool->holders(last_page(b)) - gone > 1;
    }
    std::size_t pages_needed(std::int64_t b) const {
        const std::int64_t length = cache_.at(b).length;
        const std::int64_t pages = cache_.blocks_for(length + count(b)) - cache_.blocks_for(length);
        return static_cast<std::size_t>(pages) + (will_copy(b) ? 1 : 0);
    }
    void give_pages(std::int64_t b) {
        const std::int64_t length = cache_.at(b).length, rows = cache_.layout.rows;
        std::int32_t* const blocks = cache_.blocks_of(b);
        if (must_copy(b)) {
            std::int32_t& last = blocks[length / rows];
            copy_rows({cache_, last}, {cache_, next()}, length % rows);
            cache_.pool->release(last);
            last = cache_.taken[used_ - 1];
        }
        const std::int64_t end = cache_.blocks_for(length + count(b));
        for (std::int64_t n = cache_.blocks_for(length); n < end; ++n) blocks[n] = next();
    }
    std::int32_t next() noexcept { return cache_.taken[used_++]; }

    // In a ring shorter than the tokens: a later one of them takes the place of token t.
    bool overwritten_at_once(std::int64_t length, std::int64_t added, std::int64_t t) const noexcept {
        if (config_.kind != CacheKind::ring || length + t < config_.keep_first) return false;
        return t < added - (config_.capacity - config_.keep_first);
    }

    KvCache::Impl& cache_;
    const KvCacheConfig& config_;
    const ConstTensorView &k_, &v_, &counts_;
    std::size_t used_ = 0;  // of cache_.taken
};

}  // namespace

void KvCache::Impl::append(const KernelTable& kernels, const ConstTensorView& k, const ConstTensorView& v,
                           const ConstTensorView& counts, const Execution& execution) {
    check_arguments(k, v, counts, config);
    Execution chosen = execution;
    thread_count(execution);                          // an impossible one is refused here
    constexpr std::int64_t kInlineNumbers = 1 << 16;  // below it, waking a thread costs more than it saves
    if (k.count() < kInlineNumbers) chosen.threads = 1;
    // One row of floats for each head, before anything changes: tasks cannot fail then.
    const std::int64_t wide = (std::max(config.key_dim, config.value_dim) + 15) / 16 * 16;
    const std::int64_t heads = config.batch * config.kv_heads;
    const std::int64_t at_once = chosen.threads == 1 ? 1 : heads;
    const Scratch scratch(static_cast<std::size_t>(checked_multiply(wide, 4 * at_once, "KvCache::append")));

    Append task(*this, k, v, counts);
    task.make_room();
    parallel_for(chosen, heads, [&](std::int64_t head) {
        float* const row = scratch.data<float>() + (at_once == 1 ? 0 : head * wide);
        task.write(kernels, head / config.kv_heads, head % config.kv_heads, row);
    });
    task.commit();
}

}  // namespace headwise
