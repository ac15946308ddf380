#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attend/mask.h"
#include "core/dtype.h"

namespace headwise {
namespace {

// How far p stands from the beginning of its chunk: (p - origin) mod chunk, by floor.
std::int64_t place_in_chunk(std::int64_t p, std::int64_t origin, std::int64_t chunk) noexcept {
    const std::int64_t rest = (p % chunk - origin % chunk) % chunk;  // their difference could overflow
    return rest < 0 ? rest + chunk : rest;
}

// A finite f64 stays finite in f32: only -inf hides.
float bias_of(double value) noexcept {
    constexpr double kLargest = std::numeric_limits<float>::max();
    return static_cast<float>(std::isfinite(value) ? std::clamp(value, -kLargest, kLargest) : value);
}

}  // namespace

Visibility::Broadcast::Broadcast(const ConstTensorView& view) noexcept {
    if (view.empty()) return;
    data = view.data, dtype = view.dtype;
    for (int axis = 0; axis < view.rank; ++axis) {
        strides[4 - view.rank + axis] = view.size(axis) == 1 ? 0 : view.stride(axis);
    }
}

Visibility::Visibility(const Mask& mask, const Positions& positions, const ScoreShape& shape) noexcept
    : mask_(mask),
      positions_(positions),
      document_keys_(mask.documents.keys.empty() ? mask.documents.queries : mask.documents.keys),
      shape_(shape),
      keep_(mask.keep),
      bias_(mask.bias) {}

// The last document that begins at or before the row; empty ones before it hold no row.
std::int64_t Visibility::document_of(std::int64_t i) const noexcept {
    const ConstTensorView& queries = mask_.documents.queries;
    std::int64_t first = 0, last = queries.size(0) - 2;
    while (first < last) {
        const std::int64_t middle = first + (last - first + 1) / 2;
        if (integer_at(queries, middle) <= i) {
            first = middle;
        } else {
            last = middle - 1;
        }
    }
    return first;
}

std::int64_t Visibility::offset_of(std::int64_t sequence, std::int64_t bottom_right) const noexcept {
    if (positions_.align == Positions::Align::bottom_right) return bottom_right;
    if (positions_.align == Positions::Align::top_left) return 0;
    return integer_at(positions_.offsets, sequence);
}

Visibility::Place Visibility::place(std::int64_t b, std::int64_t i) const noexcept {
    if (mask_.documents.queries.empty()) {
        return {add_clamped(i, offset_of(b, shape_.S - shape_.T)), {0, shape_.S}};
    }
    const std::int64_t d = document_of(i);
    const std::int64_t row = integer_at(mask_.documents.queries, d);
    const std::int64_t rows = integer_at(mask_.documents.queries, d + 1) - row;
    const KeyRange keys{integer_at(document_keys_, d), integer_at(document_keys_, d + 1)};
    return {add_clamped(i - row, offset_of(d, keys.end - keys.begin - rows)), keys};
}

Visibility::Bounds Visibility::bounds(std::int64_t b, std::int64_t i) const noexcept {
    const Place at = place(b, i);
    const KeyRange all = at.keys;
    const std::int64_t p = add_clamped(at.p, all.begin);  // among the keys of the tensors
    const auto inside = [&](const KeyRange& range) {
        return KeyRange{std::clamp(range.begin, all.begin, all.end), std::clamp(range.end, all.begin, all.end)};
    };
    KeyRange base = all;
    if (!mask_.key_starts.empty()) base.begin = integer_at(mask_.key_starts, b);
    if (!mask_.key_lengths.empty()) base.end = integer_at(mask_.key_lengths, b);
    if (mask_.causal) base.end = std::min(base.end, add_clamped(p, 1));
    if (mask_.chunk > 0) {
        const std::int64_t origin = mask_.chunk_origins.empty() ? 0 : integer_at(mask_.chunk_origins, b);
        const std::int64_t first = add_clamped(p, -place_in_chunk(at.p, origin, mask_.chunk));
        base.begin = std::max(base.begin, first);
        base.end = std::min(base.end, add_clamped(first, mask_.chunk));
    }
    base = inside(base);
    Bounds bounds{.base = base, .window = base, .early = {}};
    if (mask_.window_left >= 0) {
        bounds.window.begin = std::max(base.begin, add_clamped(p, -mask_.window_left));
    }
    if (mask_.window_right >= 0) {
        bounds.window.end = std::min(base.end, add_clamped(add_clamped(p, mask_.window_right), 1));
    }
    bounds.window = inside(bounds.window);
    if (has_gaps()) {
        bounds.early = inside({base.begin, std::min(base.end, add_clamped(all.begin, mask_.keep_first))});
    }
    return bounds;
}

KeySpans Visibility::spans(std::int64_t b, std::int64_t i) const noexcept {
    const Bounds at = bounds(b, i);
    if (at.early.empty()) return {.main = at.window};
    if (at.window.empty()) return {.main = at.early};
    if (at.early.end >= at.window.begin) {
        return {.main = {at.early.begin, std::max(at.early.end, at.window.end)}};
    }
    return {.early = at.early, .main = at.window};
}

KeyRange Visibility::rows(std::int64_t b, std::int64_t first, std::int64_t last) const noexcept {
    const Bounds from = bounds(b, first), to = first == last ? from : bounds(b, last);
    if (!has_gaps()) return {from.window.begin, to.window.end};
    return {from.base.begin, std::max(to.early.end, to.window.end)};
}

bool Visibility::sees(std::int64_t b, std::int64_t first_head, std::int64_t heads,
                      const KeyRange& keys) const noexcept {
    // Ends of rows rise: the rows that come near these keys are found by halving.
    std::int64_t row = 0, last = shape_.T;
    while (row < last) {
        const std::int64_t middle = row + (last - row) / 2;
        if (rows(b, middle, middle).end > keys.begin) {
            last = middle;
        } else {
            row = middle + 1;
        }
    }
    const bool alike = !has_blocks() && keep_.strides[1] == 0 && bias_.strides[1] == 0;
    for (; row < shape_.T && rows(b, row, row).begin < keys.end; ++row) {
        if (!spans(b, row).meets(keys)) continue;
        if (!has_tensors()) return true;
        for (std::int64_t h = 0; h < (alike ? 1 : heads); ++h) {
            if (sees_tensors({b, first_head + h, row}, keys)) return true;
        }
    }
    return false;
}

void Visibility::read(const Row& row, std::int64_t first, int count, std::uint8_t* visible,
                      float* bias) const noexcept {
    if (has_keep()) {
        const auto* from = static_cast<const std::uint8_t*>(keep_.data) + keep_.at(row, first);
        const std::int64_t step = keep_.strides[3];
        if (step == 1) {
            std::memcpy(visible, from, static_cast<std::size_t>(count));
        } else {
            for (int n = 0; n < count; ++n) visible[n] = from[n * step];
        }
    } else {
        std::memset(visible, 1, static_cast<std::size_t>(count));
    }
    if (has_blocks()) hide_blocks(row, first, count, visible);
    if (!has_bias()) return;
    const std::int64_t at = bias_.at(row, first), step = bias_.strides[3];
    if (bias_.dtype == DType::f32) {
        const float* from = static_cast<const float*>(bias_.data) + at;
        for (int n = 0; n < count; ++n) bias[n] = from[n * step];
    } else {
        for (int n = 0; n < count; ++n) bias[n] = bias_of(load_f64(bias_.data, bias_.dtype, at + n * step));
    }
    for (int n = 0; n < count; ++n) {
        if (bias[n] == -std::numeric_limits<float>::infinity()) visible[n] = 0;
    }
}

void Visibility::hide_blocks(const Row& row, std::int64_t first, int count, std::uint8_t* visible) const noexcept {
    const BlockList& list = mask_.blocks;
    const auto along = [](const ConstTensorView& view, int axis, std::int64_t n) {
        return view.size(axis) == 1 ? 0 : n * view.stride(axis);
    };
    const auto at = [&](const ConstTensorView& view) {
        return along(view, 0, row.b) + along(view, 1, row.h) + row.i / list.query_block * view.stride(2);
    };
    const std::int64_t listed = load_i64(list.counts.data, list.counts.dtype, at(list.counts));
    const std::int64_t from = at(list.blocks), step = list.blocks.stride(3);
    const auto block = [&](std::int64_t n) {
        return load_i64(list.blocks.data, list.blocks.dtype, from + n * step);
    };
    std::int64_t n = 0;
    for (std::int64_t stop = listed; n < stop;) {  // the first block that does not end before `first`
        const std::int64_t middle = n + (stop - n) / 2;
        if (block(middle) < first / list.key_block) {
            n = middle + 1;
        } else {
            stop = middle;
        }
    }
    int shown = 0;  // keys below it are settled
    for (; n < listed && block(n) <= (first + count - 1) / list.key_block; ++n) {
        const std::int64_t begin = block(n) * list.key_block - first;
        const int hide = static_cast<int>(std::max<std::int64_t>(begin, shown));
        std::fill(visible + shown, visible + hide, std::uint8_t{0});
        shown = static_cast<int>(std::min<std::int64_t>(begin + list.key_block, count));
    }
    std::fill(visible + shown, visible + count, std::uint8_t{0});
}

bool Visibility::read_f64(const Row& row, std::int64_t key, double& bias) const noexcept {
    bias = has_bias() ? load_f64(bias_.data, bias_.dtype, bias_.at(row, key)) : 0.0;
    bool kept = !has_keep() || static_cast<const std::uint8_t*>(keep_.data)[keep_.at(row, key)] != 0;
    if (has_blocks()) {
        std::uint8_t shown = 1;
        hide_blocks(row, key, 1, &shown);
        kept = kept && shown != 0;
    }
    return kept && bias != -std::numeric_limits<double>::infinity();
}

bool Visibility::sees_tensors(const Row& row, const KeyRange& keys) const noexcept {
    constexpr int kPiece = 256;
    std::uint8_t visible[kPiece];
    float bias[kPiece];
    const KeySpans spans = this->spans(row.b, row.i);
    for (const KeyRange& span : {spans.early, spans.main}) {
        const std::int64_t end = std::min(span.end, keys.end);
        for (std::int64_t key = std::max(span.begin, keys.begin); key < end; key += kPiece) {
            const int count = static_cast<int>(std::min<std::int64_t>(kPiece, end - key));
            read(row, key, count, visible, bias);
            if (std::any_of(visible, visible + count, [](std::uint8_t shown) { return shown != 0; })) return true;
        }
    }
    return false;
}

bool Visibility::hides_all(const Row& row) const noexcept {
    const KeySpans spans = this->spans(row.b, row.i);
    if (spans.empty() || !has_tensors()) return spans.empty();
    return !sees_tensors(row, spans.cover());
}

}  // namespace headwise
