// Rows of a cache: where they lie, and how numbers become stored ones and back.
#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "heads/kv_cache.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

bool is_quantized(CacheType type) noexcept { return type == CacheType::int8 || type == CacheType::int4; }

Storage storage_of(CacheType type) noexcept {
    return type == CacheType::f32 ? Storage::f32 : type == CacheType::bf16 ? Storage::bf16 : Storage::f16;
}

// body(first channel, channels, byte in the row, index of the scale)
template <class Body>
void for_groups(const RowFormat& format, Body body) noexcept {
    std::int64_t byte = 0, index = 0;
    for (std::int64_t first = 0; first < format.width; first += format.group, ++index) {
        const std::int64_t channels = std::min(format.group, format.width - first);
        body(first, channels, byte, index);
        byte += row_bytes(format.type, channels, format.group);
    }
}

}  // namespace

CacheRows KvCache::Impl::rows_of_block(std::int32_t block, std::int64_t g, std::int64_t row) const noexcept {
    std::byte* const base = pool->block(block);
    const std::int64_t at = g * layout.rows + row;
    CacheRows rows{
        .keys = base + at * layout.key_row,
        .values = base + layout.values_at + at * layout.value_row,
        .key_scales = reinterpret_cast<float*>(base + layout.key_scales_at) + at * layout.key_scales,
        .value_scales = reinterpret_cast<float*>(base + layout.value_scales_at) + at * layout.value_scales,
        .count = layout.rows - row};
    if (config.value_in_key) rows.values = rows.keys, rows.value_scales = rows.key_scales;
    return rows;
}

CacheRows KvCache::Impl::rows_at(std::int64_t b, std::int64_t g, std::int64_t key) const noexcept {
    if (config.kind == CacheKind::paged) {
        return rows_of_block(blocks_of(b)[key / layout.rows], g, key % layout.rows);
    }
    if (config.kind == CacheKind::contiguous) return rows_of_block(*blocks_of(b), g, key);
    const std::int64_t kept = config.keep_first;
    if (key >= kept) return rows_of_block(*blocks_of(b), g, kept + (key - kept) % (config.capacity - kept));
    CacheRows rows = rows_of_block(*blocks_of(b), g, key);
    rows.count = kept - key;
    return rows;
}

void store_row(const KernelTable& kernels, const RowFormat& format, std::byte* row, float* scales,
               const void* from, DType dtype, float* wide) noexcept {
    const Storage given = headwise::storage_of(dtype);
    if (!is_quantized(format.type)) {
        const Storage kept = storage_of(format.type);
        if (given == kept) {
            std::memcpy(row, from, static_cast<std::size_t>(row_bytes(format.type, format.width, format.group)));
        } else if (kept == Storage::f32) {
            kernels.rows.widen(reinterpret_cast<float*>(row), from, given, format.width);
        } else {
            kernels.rows.widen(wide, from, given, format.width);
            kernels.rows.narrow(row, kept, wide, format.width);
        }
        return;
    }
    const auto quantize = format.type == CacheType::int8 ? kernels.cache.quantize8 : kernels.cache.quantize4;
    const float* numbers = static_cast<const float*>(from);
    if (given != Storage::f32) {
        kernels.rows.widen(wide, from, given, format.width);
        numbers = wide;
    }
    for_groups(format, [&](std::int64_t first, std::int64_t channels, std::int64_t byte, std::int64_t index) {
        scales[index] = quantize(row + byte, numbers + first, channels);
    });
}

void load_row(const KernelTable& kernels, const RowFormat& format, const std::byte* row, const float* scales,
              float* to) noexcept {
    if (!is_quantized(format.type)) return kernels.rows.widen(to, row, storage_of(format.type), format.width);
    const auto dequantize = format.type == CacheType::int8 ? kernels.cache.dequantize8 : kernels.cache.dequantize4;
    for_groups(format, [&](std::int64_t first, std::int64_t channels, std::int64_t byte, std::int64_t index) {
        dequantize(to + first, row + byte, scales[index], channels);
    });
}

}  // namespace headwise
