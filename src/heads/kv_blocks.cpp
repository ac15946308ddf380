#include "heads/kv_blocks.h"

#include <algorithm>
#include <cassert>
#include <limits>

#include "core/check.h"
#include "core/storage.h"
#include "kernels/cache.h"

namespace headwise {
namespace {

constexpr const char* kWhere = "KvCache: memory";

void check_config(const KvCacheConfig& c) {
    check(c.kind <= CacheKind::paged && c.type <= CacheType::int4, "KvCache: kind ", static_cast<int>(c.kind),
          " or type ", static_cast<int>(c.type), " is none of CacheKind and CacheType");
    check(c.batch >= 0 && c.kv_heads >= 0 && c.capacity >= 0, "KvCache: batch ", c.batch, ", kv_heads ",
          c.kv_heads, ", capacity ", c.capacity, "; sizes cannot be negative");
    check(c.key_dim > 0 && c.value_dim >= 0, "KvCache: key_dim ", c.key_dim, ", value_dim ", c.value_dim,
          "; a key has at least one channel, a value none or more");
    check(!c.value_in_key || c.value_dim <= c.key_dim, "KvCache: value_dim ", c.value_dim,
          " with value_in_key; the value is the first columns of a key of ", c.key_dim);
    const bool ring = c.kind == CacheKind::ring;
    check(c.keep_first == 0 || (ring && c.keep_first > 0 && c.keep_first < c.capacity), "KvCache: keep_first ",
          c.keep_first, ring ? " must be less than the capacity, " : " is for rings; the capacity is ",
          c.capacity);
    const bool paged = c.kind == CacheKind::paged;
    check(!paged || (c.page_size > 0 && c.pages >= 0), "KvCache: page_size ", c.page_size, ", pages ", c.pages,
          "; a page holds at least one key, and 0 pages stand for what all sequences need");
    check(c.scale_group >= 0, "KvCache: scale_group ", c.scale_group, "; give the channels of a scale, or 0");
}

std::int64_t add(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    check(!__builtin_add_overflow(a, b, &sum), kWhere, ": ", a, " + ", b, " bytes are not a size");
    return sum;
}
std::int64_t round_up(std::int64_t bytes) {
    const auto step = static_cast<std::int64_t>(kAlignment);
    return add(bytes, step - 1) / step * step;
}

}  // namespace

std::int64_t row_bytes(CacheType type, std::int64_t width, std::int64_t group) noexcept {
    switch (type) {
        case CacheType::f32:
            return 4 * width;
        case CacheType::bf16:
        case CacheType::f16:
            return 2 * width;
        case CacheType::int8:
            return width;
        case CacheType::int4:
            return width / group * bytes_of_nibbles(group) + bytes_of_nibbles(width % group);
    }
    return 0;
}

std::int64_t row_scales(CacheType type, std::int64_t width, std::int64_t group) noexcept {
    const bool scaled = type == CacheType::int8 || type == CacheType::int4;
    return scaled ? (width + group - 1) / group : 0;
}

BlockLayout::BlockLayout(const KvCacheConfig& c)
    : G(c.kv_heads), rows(c.kind == CacheKind::paged ? c.page_size : c.capacity), blocks_per_sequence(1) {
    check_config(c);
    constexpr std::int64_t kMostChannels = std::int64_t{1} << 40;
    check(c.key_dim <= kMostChannels && c.value_dim <= kMostChannels, kWhere, ": ", c.key_dim, " and ",
          c.value_dim, " channels");
    if (c.kind == CacheKind::paged) blocks_per_sequence = c.capacity / rows + (c.capacity % rows != 0);
    group = c.scale_group > 0 ? c.scale_group : std::max(c.key_dim, c.value_dim);
    group = std::min(group, std::max(c.key_dim, c.value_dim));
    const std::int64_t value_dim = c.value_in_key ? 0 : c.value_dim;
    key_row = row_bytes(c.type, c.key_dim, group), value_row = row_bytes(c.type, value_dim, group);
    key_scales = row_scales(c.type, c.key_dim, group), value_scales = row_scales(c.type, value_dim, group);
    const std::int64_t all_rows = checked_multiply(G, rows, kWhere);
    const auto part = [&](std::int64_t row) { return round_up(checked_multiply(all_rows, row, kWhere)); };
    values_at = part(key_row);
    key_scales_at = add(values_at, part(value_row));
    value_scales_at = add(key_scales_at, part(4 * key_scales));
    bytes = add(value_scales_at, part(4 * value_scales));
}

BlockPool::BlockPool(std::int64_t count, std::int64_t block_bytes) : block_bytes_(block_bytes) {
    check(count <= std::numeric_limits<std::int32_t>::max(), "KvCache: a pool of ", count,
          " pages; 2^31 - 1 are the most, use larger ones");
    memory_ = allocate(static_cast<std::size_t>(checked_multiply(count, block_bytes, kWhere)));
    holders_.resize(static_cast<std::size_t>(count));
    free_.resize(holders_.size());
    for (std::size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<std::int32_t>(free_.size() - 1 - i);
}

std::int64_t BlockPool::free_blocks() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::int64_t>(free_.size());
}

bool BlockPool::take(std::span<std::int32_t> ids) {
    const std::lock_guard lock(mutex_);
    if (ids.size() > free_.size()) return false;
    for (std::int32_t& id : ids) {
        id = free_.back();
        free_.pop_back();
        holders_[static_cast<std::size_t>(id)] = 1;
    }
    return true;
}

void BlockPool::share(std::int32_t id) {
    const std::lock_guard lock(mutex_);
    ++holders_[static_cast<std::size_t>(id)];
}

void BlockPool::release(std::int32_t id) {
    const std::lock_guard lock(mutex_);
    std::int64_t& holders = holders_[static_cast<std::size_t>(id)];
    assert(holders > 0);
    if (--holders == 0) free_.push_back(id);  // within the capacity that it was made with
}

std::int64_t BlockPool::holders(std::int32_t id) const {
    const std::lock_guard lock(mutex_);
    return holders_[static_cast<std::size_t>(id)];
}

}  // namespace headwise
