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

RowStates take_states(const Problem& problem, std::int64_t rows, Carver& carver) noexcept {
    const std::int64_t stride = round_up(problem.Dv, problem.kernels.lanes);
    return {.max = carver.take<float>(rows),
            .sum = carver.take<float>(rows),
            .o = carver.take<float>(rows * stride),
            .stride = stride};
}

// What a block needs between tiles, and room for one kernel call.
struct RowScratch {
    RowScratch(const Problem& problem, const RowBlock& block, bool packed, Carver& carver) noexcept
        : q(carver.take<float>(block.count * problem.D)),
          total(take_states(problem, block.count, carver)),
          in_call(std::min(block.count, call_rows(problem) + problem.kernels.tile_rows - 1)),
          p(carver.take<float>(in_call * kKeyTile)),
          rules(problem, block, in_call, carver) {
        if (problem.S > kSplitKeys) piece = take_states(problem, block.count, carver);
        if (packed) return;
        scratch = carver.take<float>(in_place_scratch(problem.kernels.lanes, problem.D, problem.Dv));
        gathered = carver.take<float>(problem.keys.scratch_floats());
    }

    float* q;
    RowStates total, piece;
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
          memory_(problem, block, packed != nullptr, carver_) {}

    void run() noexcept {
        memory_.rules.load(memory_.q);
        const KeyRange keys = keys_of(problem_, block_);
        walk(piece_of(keys, keys.begin / kSplitKeys), memory_.total);
        for (std::int64_t n = keys.begin / kSplitKeys + 1; n * kSplitKeys < keys.end; ++n) {
            walk(piece_of(keys, n), memory_.piece);
            fold_states(memory_.total, memory_.piece, block_.count);
        }
        store(memory_.total);
    }

    // The state after one piece.
    void run(std::int64_t piece, const RowStates& states) noexcept {
        memory_.rules.load(memory_.q);
        walk(piece_of(keys_of(problem_, block_), piece), states);
    }

    void store(const RowStates& states) noexcept {
        for (std::int64_t row = 0; row < block_.count; ++row) {
            memory_.rules.store(row, states.o + row * states.stride, states.max[row], states.sum[row]);
        }
    }

private:
    static KeyRange piece_of(const KeyRange& keys, std::int64_t piece) noexcept {
        return {std::max(keys.begin, piece * kSplitKeys), std::min(keys.end, (piece + 1) * kSplitKeys)};
    }

    void walk(const KeyRange& keys, const RowStates& states) noexcept {
        states_ = states, needed_ = keys;
        clear_states(states, block_.count);
        const std::int64_t step = call_rows(problem_);
        for (std::int64_t first = keys.begin / kKeyTile * kKeyTile; first < keys.end; first += kKeyTile) {
            has_keys_ = false;
            for (std::int64_t row = 0, rows = 0; row < block_.count; row += rows) {
                rows = block_.count - row;
                if (rows >= step + problem_.kernels.tile_rows) rows = step;  // a few left over join the last call
                visit(first, row, static_cast<int>(rows));
            }
        }
    }

    // `count` rows from `row` on against the tile that starts at key `first`.
    void visit(std::int64_t first, std::int64_t row, int count) noexcept {
        AttendTile tile = tile_of(first, row, count);
        if (!memory_.rules.see(first, row, tile)) return;
        const AttendKernels& kernels = problem_.kernels.attend;
        if (packed_ == nullptr) {
            if (!has_keys_) read_keys(first);
            kernels.scores_in_place(tile, keys_.k);
            weigh(first, row, tile);
            kernels.values_in_place(tile, keys_.v);
        } else {
            const std::int64_t n = first / kKeyTile - packed_->first_tile;
            kernels.scores(tile, packed_->keys + n * kKeyTile * problem_.D);
            weigh(first, row, tile);
            kernels.values(tile, packed_->values + n * kKeyTile * padded_columns(problem_), packed_->finite[n]);
        }
    }

    void weigh(std::int64_t first, std::int64_t row, const AttendTile& tile) const noexcept {
        memory_.rules.cap(tile);
        problem_.kernels.attend.softmax(tile);
        memory_.rules.drop(first, row, tile);
    }

    AttendTile tile_of(std::int64_t first, std::int64_t row, int count) const noexcept {
        return {.rows = count,
                .keys = keys_in_tile(first),
                .D = problem_.D,
                .Dv = problem_.Dv,
                .q = memory_.q + row * problem_.D,
                .q_stride = problem_.D,
                .begin = nullptr,  // these four by the rules
                .end = nullptr,
                .visible = nullptr,
                .bias = nullptr,
                .p = memory_.p,
                .max = states_.max + row,
                .sum = states_.sum + row,
                .o = states_.o + row * states_.stride,
                .o_stride = states_.stride,
                .scratch = memory_.scratch};
    }

    // Only once somebody is known to see a key of the tile.
    void read_keys(std::int64_t first) noexcept {
        has_keys_ = true;
        keys_ = problem_.keys.read(
            {.b = block_.b, .g = block_.g, .first = first, .keys = keys_in_tile(first), .needed = needed_},
            memory_.gathered);
    }

    int keys_in_tile(std::int64_t first) const noexcept {
        return static_cast<int>(std::min<std::int64_t>(kKeyTile, problem_.S - first));
    }

    const Problem& problem_;
    const RowBlock block_;
    const PackedHead* packed_;
    Carver carver_;
    RowScratch memory_;
    RowStates states_;        // of the piece at hand
    KeyRange needed_{};       // keys of it that somebody sees
    KeySource::Rows keys_{};  // of the tile at hand, where they are not packed
    bool has_keys_ = false;
};

}  // namespace

KeyRange keys_of(const Problem& problem, const RowBlock& block) noexcept {
    const std::int64_t last = block.first + block.count - 1;
    return problem.visibility.rows(block.b, block.first / problem.group, last / problem.group);
}

bool tile_is_seen(const Problem& problem, const RowBlock& block, std::int64_t tile) noexcept {
    const KeyRange keys{tile * kKeyTile, std::min((tile + 1) * kKeyTile, problem.S)};
    if (!keys_of(problem, block).meets(keys)) return false;
    const Visibility& mask = problem.visibility;
    const bool holes = mask.has_tensors() || mask.has_gaps() || mask.has_documents();
    return !holes || mask.sees(block.b, block.g * problem.group, problem.group, keys);
}

std::int64_t padded_columns(const Problem& problem) noexcept {
    return round_up(problem.Dv, problem.kernels.panel);
}

std::size_t row_scratch_bytes(const Problem& problem, std::int64_t rows, bool packed) noexcept {
    Carver carver(nullptr);
    RowScratch(problem, {.count = rows}, packed, carver);
    return carver.used();
}

void attend_rows(const Problem& problem, const RowBlock& block, const PackedHead* packed, void* scratch) noexcept {
    RowWalk(problem, block, packed, scratch).run();
}

std::size_t state_bytes(const Problem& problem, std::int64_t rows) noexcept {
    Carver carver(nullptr);
    take_states(problem, rows, carver);
    return carver.used();
}

namespace {

RowStates states_at(const Problem& problem, std::int64_t rows, std::byte* states) noexcept {
    Carver carver(states);
    return take_states(problem, rows, carver);
}

}  // namespace

void attend_piece(const Problem& problem, const RowBlock& block, std::int64_t piece, std::byte* states,
                  void* scratch) noexcept {
    RowWalk(problem, block, nullptr, scratch).run(piece, states_at(problem, block.count, states));
}

void finish_rows(const Problem& problem, const RowBlock& block, const PieceStates& pieces,
                 void* scratch) noexcept {
    const auto states = [&](std::int64_t piece) {
        const std::size_t bytes = state_bytes(problem, block.count);
        return states_at(problem, block.count, pieces.first + bytes * static_cast<std::size_t>(piece));
    };
    const RowStates total = states(0);
    for (std::int64_t n = 1; n < pieces.count; ++n) fold_states(total, states(n), block.count);
    RowWalk(problem, block, nullptr, scratch).store(total);
}

}  // namespace headwise
