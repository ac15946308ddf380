#include "attend/key_source.h"

#include <algorithm>

#include "attend/problem.h"
#include "core/dtype.h"
#include "kernels/storage_of.h"

namespace headwise {

KeyShape key_shape(const AttendInputs& in) {
    if (in.cache != nullptr) {
        const KvCacheConfig& c = in.cache->config();
        return {in.cache->longest(), c.kv_heads, c.key_dim, c.value_dim};
    }
    if (in.pages.table.empty()) return {in.k.size(1), in.k.size(2), in.k.size(3), in.v.size(3)};
    const std::int64_t S = checked_multiply(in.pages.table.size(1), in.k.size(1), "attend: S of the page table");
    return {S, in.k.size(2), in.k.size(3), in.v.size(3)};
}

HeldKeys::HeldKeys(const AttendInputs& in) : mask(in.mask), positions(in.positions) {
    if (in.cache == nullptr) return;
    const std::int64_t B = in.q.size(0), T = in.q.size(1);
    memory_.emplace(static_cast<std::size_t>(16 * B));
    auto* const lengths = memory_->data<std::int64_t>();
    std::int64_t* const offsets = lengths + B;
    const ConstTensorView& given = in.mask.key_lengths;
    for (std::int64_t b = 0; b < B; ++b) {
        const std::int64_t length = in.cache->impl().at(b).length;
        offsets[b] = length - T;
        lengths[b] = given.empty() ? length : std::min(length, integer_at(given, b));
    }
    mask.key_lengths = ConstTensorView(lengths, DType::i64, {B});
    if (positions.align == Positions::Align::bottom_right) {
        positions = Positions::at(ConstTensorView(offsets, DType::i64, {B}));
    }
}

KeySource::KeySource(const KernelTable& kernels, const AttendInputs& in) noexcept
    : kernels_(kernels),
      in_(in),
      cache_(in.cache == nullptr ? nullptr : &in.cache->impl()),
      shape_(key_shape(in)),
      kind_(cache_ != nullptr        ? Kind::cache
            : in.pages.table.empty() ? Kind::views
                                     : Kind::pages) {
    if (kind_ != Kind::cache) {
        k_stride_ = in.k.stride(1), v_stride_ = in.v.stride(1);
        if (has_storage(in.k.dtype)) storage_ = storage_of(in.k.dtype);
        if (kind_ == Kind::pages) page_size_ = in.k.size(1), gathers_ = page_size_ % kKeyTile != 0;
        return;
    }
    const CacheType type = cache_->config.type;
    quantized_ = type == CacheType::int8 || type == CacheType::int4;
    gathers_ = quantized_ || cache_->config.kind == CacheKind::ring ||
               (cache_->config.kind == CacheKind::paged && cache_->layout.rows % kKeyTile != 0);
    storage_ = type == CacheType::bf16 ? Storage::bf16 : type == CacheType::f16 ? Storage::f16 : Storage::f32;
    k_stride_ = quantized_ ? cache_->layout.key_row : shape_.D;
    v_stride_ = cache_->config.value_in_key ? k_stride_ : quantized_ ? cache_->layout.value_row : shape_.Dv;
}

std::int64_t KeySource::held(std::int64_t b) const noexcept {
    if (kind_ == Kind::cache) return cache_->at(b).length;
    const ConstTensorView& lengths = in_.mask.key_lengths;
    return kind_ == Kind::views ? shape_.S : integer_at(lengths, b);
}

KeySource::Run KeySource::run_at(std::int64_t b, std::int64_t g, std::int64_t key) const noexcept {
    if (kind_ == Kind::cache) {
        const CacheRows rows = cache_->rows_at(b, g, key);
        return {rows.keys, rows.values, rows.key_scales, rows.value_scales, rows.count};
    }
    const auto row = [&](const ConstTensorView& view, std::int64_t n, std::int64_t at) {
        return static_cast<const std::byte*>(head_row(view, n, at, g));
    };
    if (kind_ == Kind::views) {
        return {.k = row(in_.k, b, key), .v = row(in_.v, b, key), .count = shape_.S - key};
    }
    const ConstTensorView& table = in_.pages.table;
    const std::int64_t at = b * table.stride(0) + key / page_size_ * table.stride(1);
    const std::int64_t page = static_cast<const std::int32_t*>(table.data)[at], n = key % page_size_;
    return {.k = row(in_.k, page, n), .v = row(in_.v, page, n), .count = page_size_ - n};
}

KeySource::Rows KeySource::read(const KeyTile& tile, float* scratch) const noexcept {
    if (!quantized_) {
        const Run run = run_at(tile.b, tile.g, tile.first);
        if (run.count >= tile.keys) return {{run.k, k_stride_, storage_}, {run.v, v_stride_, storage_}};
    }
    return gather(tile, scratch);
}

KeySource::Rows KeySource::gather(const KeyTile& tile, float* scratch) const noexcept {
    const bool value_in_key = cache_ != nullptr && cache_->config.value_in_key;
    float* const k = scratch;
    float* const v = scratch + kKeyTile * shape_.D;
    const std::int64_t begin = std::clamp<std::int64_t>(tile.needed.begin - tile.first, 0, tile.keys);
    const std::int64_t end = std::clamp<std::int64_t>(tile.needed.end - tile.first, begin, tile.keys);
    const auto clear = [&](std::int64_t from, std::int64_t to) {
        std::fill(k + from * shape_.D, k + to * shape_.D, 0.0f);
        if (!value_in_key) std::fill(v + from * shape_.Dv, v + to * shape_.Dv, 0.0f);
    };
    clear(0, begin);
    for (std::int64_t n = begin; n < end;) {
        const Run run = run_at(tile.b, tile.g, tile.first + n);
        const std::int64_t count = std::min(run.count, end - n);
        gather_run(run, count, k + n * shape_.D, value_in_key ? nullptr : v + n * shape_.Dv);
        n += count;
    }
    clear(end, tile.keys);
    const KeyRows keys{k, shape_.D, Storage::f32};
    return {keys, value_in_key ? keys : KeyRows{v, shape_.Dv, Storage::f32}};
}

void KeySource::gather_run(const Run& run, std::int64_t count, float* k, float* v) const noexcept {
    const auto step = quantized_ ? 1 : storage_ == Storage::f32 ? 4 : 2;
    if (!quantized_) {
        for (std::int64_t n = 0; n < count; ++n) {
            kernels_.rows.widen(k + n * shape_.D, run.k + n * k_stride_ * step, storage_, shape_.D);
        }
        for (std::int64_t n = 0; v != nullptr && n < count; ++n) {
            kernels_.rows.widen(v + n * shape_.Dv, run.v + n * v_stride_ * step, storage_, shape_.Dv);
        }
        return;
    }
    const BlockLayout& layout = cache_->layout;
    const RowFormat key{cache_->config.type, shape_.D, layout.group};
    const RowFormat value{cache_->config.type, shape_.Dv, layout.group};
    for (std::int64_t n = 0; n < count; ++n) {
        load_row(kernels_, key, run.k + n * k_stride_, run.k_scales + n * layout.key_scales, k + n * shape_.D);
    }
    for (std::int64_t n = 0; v != nullptr && n < count; ++n) {
        load_row(kernels_, value, run.v + n * v_stride_, run.v_scales + n * layout.value_scales,
                 v + n * shape_.Dv);
    }
}

}  // namespace headwise
