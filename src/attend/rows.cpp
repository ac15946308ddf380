#include "attend/rows.h"

#include <algorithm>
#include <limits>

#include "attend/carver.h"
#include "attend/row_rules.h"

namespace headwise {
namespace {

std::int64_t round_up(std::int64_t n, std::int64_t step) noexcept { return (n + step - 1) / step * step; }

// Rows of one kernel call: with their scores and one panel of keys they should stay in L1.
std::int64_t call_rows(const Problem& problem) noexcept { return 4 * problem.kernels.tile_rows; }

// State of the rows of a block between tiles, and room for one kernel call.
struct RowState {
    RowState(const Problem& problem, const RowBlock& block, bool packed, Carver& carver) noexcept
        : o_stride(round_up(problem.Dv, problem.kernels.lanes)),
          q(carver.take<float>(block.count * problem.D)),
          o(carver.take<float>(block.count * o_stride)),
          max(carver.take<float>(block.count)),
          sum(carver.take<float>(block.count)),
          in_call(std::min(block.count, call_rows(problem) + problem.kernels.tile_rows - 1)),
          p(carver.take<float>(in_call * kKeyTile)),
          rules(problem, block, in_call, carver) {
        if (packed) return;
        scratch = carver.take<float>(in_place_scratch(problem.kernels.lanes, problem.D, problem.Dv));
        gathered = carver.take<float>(problem.keys.scratch_floats());
    }

    std::int64_t o_stride;
    float *q, *o, *max, *sum;
    std::int64_t in_call;  // the most rows of one kernel call
    float* p;
    RowRules rules;
    float *scratch = nullptr, *gathered = nullptr;
};

class RowWalk {
public:
    RowWalk(const Problem& problem, const RowBlock& block, const PackedHead* packed, void* scratch) noexcept
        : problem_(problem),
          block_(block),
          packed_(packed),
          carver_(scratch),
          state_(problem, block, packed != nullptr, carver_) {}

    void run() noexcept {
        load();
        const KeyRange keys = keys_of(problem_, block_);
        const std::int64_t step = call_rows(problem_);
        for (std::int64_t first = keys.begin / kKeyTile * kKeyTile; first < keys.end; first += kKeyTile) {
            if (packed_ == nullptr) read_keys(first, keys);
            for (std::int64_t row = 0, rows = 0; row < block_.count; row += rows) {
                rows = block_.count - row;
                if (rows >= step + problem_.kernels.tile_rows) rows = step;  // a few left over join the last call
                visit(first, row, static_cast<int>(rows));
            }
        }
        store();
    }

private:
    void load() noexcept {
        state_.rules.load(state_.q);
        std::fill_n(state_.o, block_.count * state_.o_stride, 0.0f);
        std::fill_n(state_.max, block_.count, -std::numeric_limits<float>::infinity());
        std::fill_n(state_.sum, block_.count, 0.0f);
    }

    // `count` rows from `row` on against the tile that starts at key `first`.
    void visit(std::int64_t first, std::int64_t row, int count) noexcept {
        AttendTile tile = tile_of(first, row, count);
        if (!state_.rules.see(first, row, tile)) return;
        const AttendKernels& kernels = problem_.kernels.attend;
        if (packed_ == nullptr) {
            kernels.scores_in_place(tile, keys_.k);
            kernels.softmax(tile);
            kernels.values_in_place(tile, keys_.v);
        } else {
            const std::int64_t n = first / kKeyTile - packed_->first_tile;
            kernels.scores(tile, packed_->keys + n * kKeyTile * problem_.D);
            kernels.softmax(tile);
            kernels.values(tile, packed_->values + n * kKeyTile * padded_columns(problem_), packed_->finite[n]);
        }
    }

    AttendTile tile_of(std::int64_t first, std::int64_t row, int count) const noexcept {
        return {.rows = count,
                .keys = keys_in_tile(first),
                .D = problem_.D,
                .Dv = problem_.Dv,
                .q = state_.q + row * problem_.D,
                .q_stride = problem_.D,
                .begin = nullptr,  // these four by the rules
                .end = nullptr,
                .visible = nullptr,
                .bias = nullptr,
                .p = state_.p,
                .max = state_.max + row,
                .sum = state_.sum + row,
                .o = state_.o + row * state_.o_stride,
                .o_stride = state_.o_stride,
                .scratch = state_.scratch};
    }

    void read_keys(std::int64_t first, const KeyRange& needed) noexcept {
        keys_ = problem_.keys.read(
            {.b = block_.b, .g = block_.g, .first = first, .keys = keys_in_tile(first), .needed = needed},
            state_.gathered);
    }

    int keys_in_tile(std::int64_t first) const noexcept {
        return static_cast<int>(std::min<std::int64_t>(kKeyTile, problem_.S - first));
    }

    void store() noexcept {
        for (std::int64_t row = 0; row < block_.count; ++row) {
            state_.rules.store(row, state_.o + row * state_.o_stride, state_.max[row], state_.sum[row]);
        }
    }

    const Problem& problem_;
    const RowBlock block_;
    const PackedHead* packed_;
    Carver carver_;
    RowState state_;
    KeySource::Rows keys_{};  // of the tile at hand, where they are not packed
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
    RowState(problem, {.count = rows}, packed, carver);
    return carver.used();
}

void attend_rows(const Problem& problem, const RowBlock& block, const PackedHead* packed, void* scratch) noexcept {
    RowWalk(problem, block, packed, scratch).run();
}

}  // namespace headwise
