#include "heads/rope.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "core/check.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "heads/check.h"
#include "kernels/dispatch.h"
#include "kernels/storage_of.h"

namespace headwise {

std::int64_t position_of(const RopePositions& positions, std::int64_t b, std::int64_t t) noexcept {
    const ConstTensorView& given = positions.given;
    if (given.empty()) {
        const ConstTensorView& offsets = positions.offsets;
        return t + (offsets.empty() ? 0 : integer_at(offsets, b));
    }
    const std::int64_t at = given.rank == 2 ? b * given.stride(0) + t * given.stride(1) : t * given.stride(0);
    return load_i64(given.data, given.dtype, at);
}

namespace {

bool depends_on_longest(const Rope& rope) noexcept {
    return rope.scaling.kind == RopeScaling::Kind::dynamic || rope.scaling.kind == RopeScaling::Kind::longrope;
}

std::int64_t longest_of(const RopePositions& positions, const ConstTensorView& heads) noexcept {
    if (positions.longest > 0) return positions.longest;
    std::int64_t largest = -1;
    for (std::int64_t b = 0; b < heads.size(0); ++b)
        for (std::int64_t t = 0; t < heads.size(1); ++t) largest = std::max(largest, position_of(positions, b, t));
    return largest == std::numeric_limits<std::int64_t>::max() ? largest : largest + 1;
}

struct AngleRow {
    const float *cos, *sin;
};

// Turns every head of every token (b, t) by row_of(b, t, own); `own` are 2 * half floats that row_of may fill, null unless
// `own_rows`.
template <class RowOf>
void turn(const KernelTable& kernels, const TensorView& heads, const RopeLayout& layout, bool own_rows,
          const Execution& execution, RowOf row_of) {
    const std::int64_t tokens = heads.size(1), count = heads.size(0) * tokens, half = layout.half;
    constexpr std::int64_t kPairsPerTask = 1 << 15;  // about 20 us, the price of waking a worker
    const std::int64_t rows_per_task =
        std::max<std::int64_t>(1, kPairsPerTask / std::max<std::int64_t>(1, heads.size(2) * half));
    const std::int64_t tasks = (count + rows_per_task - 1) / rows_per_task;
    const Scratch spare(own_rows ? static_cast<std::size_t>(tasks * 2 * half) * sizeof(float) : 0);

    const auto element = static_cast<std::int64_t>(size_of(heads.dtype));
    const Storage storage = storage_of(heads.dtype);
    const auto kernel =
        layout.pairs == Rope::Pairs::half_split ? kernels.rows.rotate_half : kernels.rows.rotate_interleaved;
    parallel_for(execution, tasks, [&](std::int64_t task) {
        float* own = own_rows ? spare.data<float>() + task * 2 * half : nullptr;
        for (std::int64_t i = task * rows_per_task; i < std::min(count, (task + 1) * rows_per_task); ++i) {
            const std::int64_t b = i / tokens, t = i % tokens;
            const AngleRow row = row_of(b, t, own);
            auto* head = static_cast<std::byte*>(heads.data) +
                         (b * heads.stride(0) + t * heads.stride(1) + layout.offset) * element;
            for (std::int64_t n = 0; n < heads.size(2); ++n, head += heads.stride(2) * element) {
                kernel(head, storage, row.cos, row.sin, half);
            }
        }
    });
}

void rotate_by_table(const KernelTable& kernels, const TensorView& heads, const RopeLayout& layout,
                     const RopeTable& table, const RopePositions& positions, const Execution& execution) {
    // Pages that are missing are made here, before the tasks: they only compute.
    bool distant = false;
    for (std::int64_t b = 0; b < heads.size(0); ++b)
        for (std::int64_t t = 0; t < heads.size(1); ++t)
            distant = table.find(position_of(positions, b, t)) == nullptr || distant;
    turn(kernels, heads, layout, distant, execution, [&](std::int64_t b, std::int64_t t, float* own) {
        const std::int64_t position = position_of(positions, b, t);
        const float* row = table.find(position);
        if (row == nullptr) table.fill(position, own);
        const float* cos = row == nullptr ? own : row;
        return AngleRow{cos, cos + layout.half};
    });
}

// Without a table: frequencies of this call alone.
void rotate_anew(const KernelTable& kernels, const TensorView& heads, const Rope& rope, const RopeLayout& layout,
                 const RopePositions& positions, const Execution& execution) {
    const Scratch memory(static_cast<std::size_t>(layout.half) * sizeof(double));
    auto* frequencies = memory.data<double>();
    fill_frequencies(rope, layout.half, longest_of(positions, heads), frequencies);
    if (rope.inverse) std::transform(frequencies, frequencies + layout.half, frequencies, std::negate<>());
    const double multiplier = rope_multiplier(rope.scaling);
    turn(kernels, heads, layout, true, execution, [&](std::int64_t b, std::int64_t t, float* own) {
        fill_angles(frequencies, layout.half, multiplier, position_of(positions, b, t), own);
        return AngleRow{own, own + layout.half};
    });
}

std::shared_ptr<const RopeTable> table_of(const Rope& rope, std::int64_t head_dim, std::int64_t longest) {
    RopeFrequencies numbers = rope_frequencies(rope, head_dim, longest);
    if (rope.inverse) {
        for (double& f : numbers.frequencies) f = -f;
    }
    return RopeTable::shared(numbers);
}

}  // namespace

Rotation::Rotation(const Rope& rope, std::int64_t head_dim, const char* where) : rope_(rope) {
    check_rope(rope, head_dim, where);
    layout_ = rope_layout(rope, head_dim, where);
    table_ = table_of(rope, head_dim, 0);
    if (rope.scaling.kind == RopeScaling::Kind::longrope) {
        long_table_ = table_of(rope, head_dim, rope.scaling.original_max_position + 1);
    }
}

const RopeTable* Rotation::table(std::int64_t longest) const noexcept {
    const RopeScaling& s = rope_.scaling;
    if (s.kind == RopeScaling::Kind::dynamic && longest > s.max_position) return nullptr;
    return long_table_ != nullptr && longest > s.original_max_position ? long_table_.get() : table_.get();
}

void rotate(const KernelTable& kernels, const TensorView& heads, const Rotation& rotation,
            const RopePositions& positions, const Execution& execution) {
    const RopeTable* table = rotation.table(0);
    if (depends_on_longest(rotation.rope())) table = rotation.table(longest_of(positions, heads));
    if (table == nullptr) {
        return rotate_anew(kernels, heads, rotation.rope(), rotation.layout(), positions, execution);
    }
    rotate_by_table(kernels, heads, rotation.layout(), *table, positions, execution);
}

void rotate(const KernelTable& kernels, const TensorView& heads, const RopeLayout& layout,
            const RopeTables& tables, const RopePositions& positions, const Execution& execution) {
    const std::int64_t half = layout.half;
    const bool direct = tables.cos.dtype == DType::f32 && tables.sin.dtype == DType::f32 && !layout.inverse;
    const auto row_of = [&](const ConstTensorView& table, std::int64_t b, std::int64_t t) {
        std::int64_t at = 0;
        if (!positions.given.empty()) {
            at = position_of(positions, b, t) * table.stride(0);
        } else {
            at = table.rank == 3 ? b * table.stride(0) + t * table.stride(1) : t * table.stride(0);
        }
        return static_cast<const std::byte*>(table.data) + at * static_cast<std::int64_t>(size_of(table.dtype));
    };
    turn(kernels, heads, layout, !direct, execution, [&](std::int64_t b, std::int64_t t, float* own) {
        const std::byte *cos = row_of(tables.cos, b, t), *sin = row_of(tables.sin, b, t);
        if (direct) return AngleRow{reinterpret_cast<const float*>(cos), reinterpret_cast<const float*>(sin)};
        kernels.rows.widen(own, cos, storage_of(tables.cos.dtype), half);
        kernels.rows.widen(own + half, sin, storage_of(tables.sin.dtype), half);
        if (layout.inverse) std::transform(own + half, own + 2 * half, own + half, std::negate<>());
        return AngleRow{own, own + half};
    });
}

void rotate(const TensorView& x, const Rope& rope, const ConstTensorView& positions, std::int64_t longest,
            const Execution& execution) {
    check_heads(x, "rotate");
    check_rope(rope, x.size(3), "rotate");
    check_rope_positions(positions, x, "rotate");
    check(longest >= 0, "rotate: longest is ", longest, ", expected a number of positions, or 0");
    const RopeLayout layout = rope_layout(rope, x.size(3), "rotate");
    rotate_anew(kernels(), x, rope, layout, {.given = positions, .longest = longest}, execution);
}

void rotate(const TensorView& x, const Rope& rope, const RopeTables& tables, const ConstTensorView& positions,
            const Execution& execution) {
    check_heads(x, "rotate");
    const RopeLayout layout = rope_layout(rope, x.size(3), "rotate");
    check_rope_tables(tables, x, layout, positions, "rotate");
    rotate(kernels(), x, layout, tables, {.given = positions}, execution);
}

}  // namespace headwise
