// The memory of key/value caches: equal blocks of rows, counted where several sequences or forks share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include <headwise/kv_cache.h>

namespace headwise {

// One block: keys [G][rows][key_row bytes], then values alike, then the scales of both. The rows of one head lie side by
// side, because decoding reads one head at a time: memory streams at full speed then, and every row lies where the
// kernels can use it. Interleaved heads ([rows][G]) would be read in pieces of one row.
struct BlockLayout {
    explicit BlockLayout(const KvCacheConfig& config);  // throws invalid_argument for a config that is none

    std::int64_t G, rows;                   // a whole sequence, or a page
    std::int64_t blocks_per_sequence;       // 1, or pages
    std::int64_t group;                     // channels of one scale; the last group of a row may be shorter
    std::int64_t key_row, value_row;        // bytes
    std::int64_t key_scales, value_scales;  // of a row
    std::int64_t values_at, key_scales_at, value_scales_at, bytes;
};

// Bytes of one row of `width` channels, and the number of its scales.
std::int64_t row_bytes(CacheType type, std::int64_t width, std::int64_t group) noexcept;
std::int64_t row_scales(CacheType type, std::int64_t width, std::int64_t group) noexcept;

// `count` blocks and who holds them. Forks of a cache share one pool, from any threads: blocks are taken and given back
// under a lock, and only their one holder writes to them.
class BlockPool {
public:
    BlockPool(std::int64_t count, std::int64_t block_bytes);  // throws out_of_memory

    std::byte* block(std::int32_t id) const noexcept {
        return static_cast<std::byte*>(memory_.get()) + id * block_bytes_;
    }
    std::int64_t count() const noexcept { return static_cast<std::int64_t>(holders_.size()); }
    std::int64_t bytes() const noexcept { return count() * block_bytes_; }
    std::int64_t free_blocks() const;

    // All of `ids`, or none and false.
    bool take(std::span<std::int32_t> ids);
    void share(std::int32_t id);
    void release(std::int32_t id);
    std::int64_t holders(std::int32_t id) const;

private:
    std::int64_t block_bytes_;
    std::shared_ptr<void> memory_;
    mutable std::mutex mutex_;
    std::vector<std::int64_t> holders_;
    std::vector<std::int32_t> free_;  // the last one is taken first
};

}  // namespace headwise
