#include "attend/rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/storage.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t step) noexcept { return (n + step - 1) / step * step; }

// Rows of one kernel call: with their scores and one panel of keys they should stay in L1.
std::int64_t call_rows(const Problem& problem) noexcept { return 4 * problem.kernels.tile_rows; }

// Carves aligned arrays out of a block of scratch; with a null block it only counts.
class Carver {
public:
    explicit Carver(void* block) noexcept : begin_(static_cast<std::byte*>(block)) {}

    template <class T>
    T* take(std::int64_t count) noexcept {
        T* array = begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + used_);
        used_ += static_cast<std::size_t>(round_up(count * static_cast<std::int64_t>(sizeof(T)), kAlignment));
        return array;
    }
    std::size_t used() const noexcept { return used_; }

private:
    std::byte* begin_;
    std::size_t used_ = 0;
};

// State of the rows of a block between tiles, and room for one kernel call.
struct RowState {
    RowState(const Problem& problem, std::int64_t rows, bool packed, Carver& carver) noexcept
        : o_stride(round_up(problem.Dv, problem.kernels.lanes)),
          q(carver.take<float>(rows * problem.D)),
          o(carver.take<float>(rows * o_stride)),
          max(carver.take<float>(rows)),
          sum(carver.take<float>(rows)),
          ranges(carver.take<KeyRange>(rows)) {
        const std::int64_t in_call = std::min(rows, call_rows(problem) + problem.kernels.tile_rows - 1);
        p = carver.take<float>(in_call * kKeyTile);
        begin = carver.take<std::int32_t>(in_call);
        end = carver.take<std::int32_t>(in_call);
        if (!packed) scratch = carver.take<float>(in_place_scratch(problem.kernels.lanes, problem.D, problem.Dv));
        if (problem.visibility.has_tensors()) visible = carver.take<std::uint8_t>(in_call * kKeyTile);
        if (problem.visibility.has_bias()) bias = carver.take<float>(in_call * kKeyTile);
    }

    std::int64_t o_stride;
    float *q, *o, *max, *sum;
    KeyRange* ranges;
    float *p = nullptr, *scratch = nullptr;
    std::int32_t *begin = nullptr, *end = nullptr;
    std::uint8_t* visible = nullptr;
    float* bias = nullptr;
};

class RowWalk {
public:
    RowWalk(const Problem& problem, const RowBlock& block, const PackedHead* packed, void* scratch) noexcept
        : problem_(problem),
          block_(block),
          packed_(packed),
          carver_(scratch),
          state_(problem, block.count, packed != nullptr, carver_) {}

    void run() noexcept {
        load();
        const KeyRange keys = keys_of(problem_, block_);
        const std::int64_t step = call_rows(problem_);
        for (std::int64_t first = keys.begin / kKeyTile * kKeyTile; first < keys.end; first += kKeyTile) {
            for (std::int64_t row = 0, rows = 0; row < block_.count; row += rows) {
                rows = block_.count - row;
                if (rows >= step + problem_.kernels.tile_rows) rows = step;  // a few left over join the last call
                visit(first, row, static_cast<int>(rows));
            }
        }
        store();
    }

private:
    Visibility::Row name(std::int64_t row) const noexcept {
        return problem_.row(block_.b, block_.g, block_.first + row);
    }

    void load() noexcept {
        const Storage storage = storage_of(problem_.q.dtype);
        for (std::int64_t row = 0; row < block_.count; ++row) {
            const Visibility::Row at = name(row);
            problem_.kernels.attend.load_query(state_.q + row * problem_.D, head_row(problem_.q, at.b, at.i, at.h),
                                               storage, problem_.D, static_cast<float>(problem_.scale));
            state_.ranges[row] = problem_.visibility.row(at.b, at.i);
        }
        std::fill_n(state_.o, block_.count * state_.o_stride, 0.0f);
        std::fill_n(state_.max, block_.count, -std::numeric_limits<float>::infinity());
        std::fill_n(state_.sum, block_.count, 0.0f);
    }

    // `count` rows from `row` on against the tile that starts at key `first`.
    void visit(std::int64_t first, std::int64_t row, int count) noexcept {
        bool some = false;
        for (int r = 0; r < count; ++r) {
            const KeyRange range = state_.ranges[row + r];
            const std::int64_t begin = std::clamp<std::int64_t>(range.begin - first, 0, kKeyTile);
            const std::int64_t end = std::clamp<std::int64_t>(range.end - first, 0, kKeyTile);
            state_.begin[r] = static_cast<std::int32_t>(begin);
            state_.end[r] = static_cast<std::int32_t>(std::max(begin, end));
            some = some || begin < end;
        }
        if (!some) return;
        read_tensors(first, row, count);
        const AttendTile tile = tile_of(first, row, count);
        const AttendKernels& kernels = problem_.kernels.attend;
        if (packed_ == nullptr) {
            kernels.scores_in_place(tile, rows_of(problem_.k, first));
            kernels.softmax(tile);
            kernels.values_in_place(tile, rows_of(problem_.v, first));
        } else {
            const std::int64_t n = first / kKeyTile - packed_->first_tile;
            kernels.scores(tile, packed_->keys + n * kKeyTile * problem_.D);
            kernels.softmax(tile);
            kernels.values(tile, packed_->values + n * kKeyTile * padded_columns(problem_), packed_->finite[n]);
        }
    }

    void read_tensors(std::int64_t first, std::int64_t row, int count) noexcept {
        if (!problem_.visibility.has_tensors()) return;
        for (int r = 0; r < count; ++r) {
            const int begin = state_.begin[r], keys = state_.end[r] - begin;
            if (keys == 0) continue;
            const std::int64_t at = r * kKeyTile + begin;
            problem_.visibility.read(name(row + r), first + begin, keys, state_.visible + at,
                                     state_.bias == nullptr ? nullptr : state_.bias + at);
        }
    }

    AttendTile tile_of(std::int64_t first, std::int64_t row, int count) const noexcept {
        return {.rows = count,
                .keys = static_cast<int>(std::min<std::int64_t>(kKeyTile, problem_.S - first)),
                .D = problem_.D,
                .Dv = problem_.Dv,
                .q = state_.q + row * problem_.D,
                .q_stride = problem_.D,
                .begin = state_.begin,
                .end = state_.end,
                .visible = state_.visible,
                .bias = state_.bias,
                .p = state_.p,
                .max = state_.max + row,
                .sum = state_.sum + row,
                .o = state_.o + row * state_.o_stride,
                .o_stride = state_.o_stride,
                .scratch = state_.scratch};
    }

    KeyRows rows_of(const ConstTensorView& view, std::int64_t first) const noexcept {
        return {head_row(view, block_.b, first, block_.g), view.stride(1), storage_of(view.dtype)};
    }

    void store() noexcept {
        const Storage storage = storage_of(problem_.out.dtype);
        for (std::int64_t row = 0; row < block_.count; ++row) {
            const Visibility::Row at = name(row);
            // A sum of 0 tells that no key was seen, or that all scores were -inf: only the mask knows which.
            const bool empty = state_.sum[row] == 0.0f && problem_.visibility.hides_all(at);
            const float sum = empty ? 1.0f : state_.sum[row];
            problem_.kernels.attend.store_output(head_row(problem_.out, at.b, at.i, at.h), storage,
                                                 state_.o + row * state_.o_stride, sum, problem_.Dv);
            if (problem_.lse.empty()) continue;
            const double lse = state_.max[row] + std::log(static_cast<double>(sum));
            store_lse(problem_, at, sum == 0.0f ? std::numeric_limits<double>::quiet_NaN() : lse);
        }
    }

    const Problem& problem_;
    const RowBlock block_;
    const PackedHead* packed_;
    Carver carver_;
    RowState state_;
};

}  // namespace

KeyRange keys_of(const Problem& problem, const RowBlock& block) noexcept {
    const std::int64_t last = block.first + block.count - 1;
    return problem.visibility.rows(block.b, block.first / problem.group, last / problem.group);
}

std::int64_t padded_columns(const Problem& problem) noexcept {
    return round_up(problem.Dv, problem.kernels.panel);
}

std::size_t row_scratch_bytes(const Problem& problem, std::int64_t rows, bool packed) noexcept {
    Carver carver(nullptr);
    RowState(problem, rows, packed, carver);
    return carver.used();
}

void attend_rows(const Problem& problem, const RowBlock& block, const PackedHead* packed, void* scratch) noexcept {
    RowWalk(problem, block, packed, scratch).run();
}

}  // namespace headwise
