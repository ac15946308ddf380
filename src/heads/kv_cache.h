// Inside a KvCache, for the stages that read it and for files.
#pragma once

#include <memory>
#include <new>
#include <stdexcept>
#include <vector>

#include <headwise/kv_cache.h>

#include "core/check.h"
#include "heads/kv_blocks.h"
#include "kernels/kernel_table.h"

namespace headwise {

// Rows of one head that lie side by side, from one key on.
struct CacheRows {
    std::byte *keys, *values;  // with value_in_key both are the keys
    float *key_scales, *value_scales;
    std::int64_t count;
};

struct KvCache::Impl {
    // `shared`: the pool of the cache that this one is a fork of.
    explicit Impl(const KvCacheConfig& config, std::shared_ptr<BlockPool> shared = {});
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    struct Sequence {
        std::int64_t length = 0;
        std::int64_t first = 0;  // keys first .. length-1 are held, and those below keep_first
    };

    std::int32_t* blocks_of(std::int64_t b) noexcept { return table.data() + b * layout.blocks_per_sequence; }
    const std::int32_t* blocks_of(std::int64_t b) const noexcept {
        return table.data() + b * layout.blocks_per_sequence;
    }
    Sequence& at(std::int64_t b) noexcept { return sequences[static_cast<std::size_t>(b)]; }
    const Sequence& at(std::int64_t b) const noexcept { return sequences[static_cast<std::size_t>(b)]; }

    std::int64_t blocks_for(std::int64_t length) const noexcept {  // that a sequence of `length` keys holds
        if (config.kind != CacheKind::paged) return 1;
        return length / layout.rows + (length % layout.rows != 0);
    }
    bool holds(std::int64_t b, std::int64_t key) const noexcept {
        return key >= 0 && key < at(b).length && (key >= at(b).first || key < config.keep_first);
    }
    // Of a key below the length. A key that a ring has overwritten gives the rows of a newer one.
    CacheRows rows_at(std::int64_t b, std::int64_t g, std::int64_t key) const noexcept;
    CacheRows rows_of_block(std::int32_t block, std::int64_t g, std::int64_t row) const noexcept;

    void append(const KernelTable& kernels, const ConstTensorView& k, const ConstTensorView& v,
                const ConstTensorView& counts, const Execution& execution);
    void truncate(std::int64_t b, std::int64_t length);
    void reorder(const std::vector<std::int64_t>& from);
    std::unique_ptr<Impl> fork() const;

    const KvCacheConfig config;
    const BlockLayout layout;
    std::shared_ptr<BlockPool> pool;
    std::vector<std::int32_t> table;  // [B][blocks_per_sequence]
    std::vector<Sequence> sequences;  // [B]
    std::vector<std::int32_t> taken;  // for append(): room for every block that one call can need
};

// The first `count` rows of every head of a block to one of the same cache or of a fork.
struct CacheBlock {
    const KvCache::Impl& cache;
    std::int32_t id;
};
void copy_rows(const CacheBlock& from, const CacheBlock& to, std::int64_t count) noexcept;

// The lists beside the rows are small, but their end must not be another exception than that of the rows.
template <class Make>
auto with_memory(Make make) {
    try {
        return make();
    } catch (const std::bad_alloc&) {
    } catch (const std::length_error&) {  // more entries than a list can have
    }
    fail(ErrorCode::out_of_memory, "KvCache: no memory for the lists of its sequences and pages");
}

// Element type and rounding of rows. Both are exact where the types agree; `wide` is room for one row of floats.
struct RowFormat {
    CacheType type;
    std::int64_t width, group;
};
void store_row(const KernelTable& kernels, const RowFormat& format, std::byte* row, float* scales,
               const void* from, DType dtype, float* wide) noexcept;
void load_row(const KernelTable& kernels, const RowFormat& format, const std::byte* row, const float* scales,
              float* to) noexcept;

}  // namespace headwise
