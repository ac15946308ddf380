// Many query rows per kv head: keys and values are packed once, then blocks of rows walk over them.
#include <algorithm>
#include <optional>

#include "attend/rows.h"
#include "core/parallel.h"
#include "core/storage.h"

namespace headwise {
namespace {

// Rows of a block: their q and o should take half of a usual L2, so that the tile of keys and values fits beside.
std::int64_t block_rows(const Problem& problem, int threads) {
    constexpr std::int64_t kBlockBytes = 192 << 10, kMost = 192, kTasksPerThread = 4;
    const std::int64_t unit = 4 * problem.kernels.tile_rows;
    const std::int64_t row_bytes = (problem.D + problem.Dv) * std::int64_t{sizeof(float)};
    std::int64_t most = std::clamp(kBlockBytes / row_bytes, unit, kMost);
    if (threads > 1) {  // enough tasks for all threads
        const std::int64_t all = problem.B * problem.G * problem.rows_of_kv_head();
        most = std::clamp(all / (threads * kTasksPerThread), std::min(unit, most), most);
    }
    const std::int64_t rows = problem.rows_of_kv_head(), blocks = (rows + most - 1) / most;
    const std::int64_t even = (rows + blocks - 1) / blocks;
    return std::min(rows, (even + unit - 1) / unit * unit);  // whole calls of the kernels
}

// Where the packed keys and values of one kv head lie in a block of memory.
struct HeadLayout {
    explicit HeadLayout(const Problem& problem) {
        const std::int64_t lanes_up = (problem.S + problem.kernels.panel - 1) / problem.kernels.panel;
        tiles = (problem.S + kKeyTile - 1) / kKeyTile;
        keys = checked_multiply(lanes_up * problem.kernels.panel, problem.D, "attend: packed keys");
        values = checked_multiply(problem.S, padded_columns(problem), "attend: packed values");
        values = (values + 15) / 16 * 16;
        bytes = static_cast<std::size_t>(checked_multiply(keys + values, sizeof(float), "attend: packed keys") +
                                         (tiles + 63) / 64 * 64);
    }
    PackedHead head(std::byte* memory, std::int64_t first_tile) const {
        auto* const floats = reinterpret_cast<float*>(memory);
        return {first_tile, floats, floats + keys, reinterpret_cast<bool*>(floats + keys + values)};
    }

    std::int64_t tiles, keys, values;
    std::size_t bytes;
};

// Everything of one call, and its two kinds of tasks.
class PackedRun {
public:
    PackedRun(const Problem& problem, const Execution& execution)
        : problem_(problem),
          execution_(execution),
          threads_(thread_count(execution)),
          layout_(problem),
          block_rows_(block_rows(problem, threads_)),
          blocks_((problem.rows_of_kv_head() + block_rows_ - 1) / block_rows_),
          row_bytes_(row_scratch_bytes(problem, block_rows_, true)) {}

    void run() {
        constexpr std::int64_t kManyHeads = 8;  // per thread: then the last ones to finish cost little
        constexpr std::size_t kSmallHead = 1 << 20;
        const std::int64_t heads = problem_.B * problem_.G;
        if (heads >= kManyHeads * threads_ && layout_.bytes <= kSmallHead) {
            one_task_per_head(heads);
        } else {
            heads_in_turn(heads);
        }
    }

private:
    RowBlock whole_head(std::int64_t head) const {
        return {head / problem_.G, head % problem_.G, 0, problem_.rows_of_kv_head()};
    }
    RowBlock block_of(std::int64_t head, std::int64_t n) const {
        RowBlock block = whole_head(head);
        block.first = n * block_rows_;
        block.count = std::min(block_rows_, block.count - block.first);
        return block;
    }
    PackedHead packed_of(std::int64_t head, std::byte* memory) const {
        return layout_.head(memory,
                            std::max<std::int64_t>(keys_of(problem_, whole_head(head)).begin, 0) / kKeyTile);
    }

    void pack_tile(std::int64_t head, const PackedHead& packed, std::int64_t tile) const {
        const std::int64_t b = head / problem_.G, g = head % problem_.G, n = tile - packed.first_tile;
        const std::int64_t first = tile * kKeyTile;
        const int keys = static_cast<int>(std::min<std::int64_t>(kKeyTile, problem_.S - first));
        const auto scratch_floats = static_cast<std::size_t>(problem_.keys.scratch_floats());
        std::optional<Scratch> gathered;
        if (problem_.keys.gathers()) gathered.emplace(sizeof(float) * scratch_floats);
        const KeySource::Rows rows = problem_.keys.read(
            {.b = b, .g = g, .first = first, .keys = keys, .needed = keys_of(problem_, whole_head(head))},
            gathered ? gathered->data<float>() : nullptr);
        const AttendKernels& kernels = problem_.kernels.attend;
        kernels.pack_keys(packed.keys + n * kKeyTile * problem_.D, rows.k, keys, problem_.D);
        packed.finite[n] = kernels.pack_values(packed.values + n * kKeyTile * padded_columns(problem_), rows.v,
                                               keys, problem_.Dv);
    }

    // Many short heads: each is packed into memory of its task just before it is used.
    void one_task_per_head(std::int64_t heads) const {
        const std::size_t bytes = (layout_.bytes + kAlignment - 1) / kAlignment * kAlignment;
        parallel_for(execution_, heads, [&](std::int64_t head) {
            const Scratch scratch(bytes + row_bytes_);
            const PackedHead packed = packed_of(head, scratch.data());
            const std::int64_t end = keys_of(problem_, whole_head(head)).end;
            for (std::int64_t tile = packed.first_tile; tile * kKeyTile < end; ++tile) {
                if (tile_is_seen(problem_, whole_head(head), tile)) pack_tile(head, packed, tile);
            }
            for (std::int64_t n = 0; n < blocks_; ++n) {
                attend_rows(problem_, block_of(head, n), &packed, scratch.data() + bytes);
            }
        });
    }

    // Few long heads: one for each thread at a time, packed and then used by all threads together.
    void heads_in_turn(std::int64_t heads) const {
        const std::int64_t wave = std::min<std::int64_t>(heads, threads_);
        const std::size_t bytes = (layout_.bytes + kAlignment - 1) / kAlignment * kAlignment;
        const Scratch memory(static_cast<std::size_t>(
            checked_multiply(static_cast<std::int64_t>(bytes), wave, "attend: packed keys and values")));
        const auto packed = [&](std::int64_t head, std::int64_t first) {
            return packed_of(head, memory.data() + bytes * static_cast<std::size_t>(head - first));
        };
        for (std::int64_t first = 0; first < heads; first += wave) {
            const std::int64_t count = std::min(wave, heads - first);
            parallel_for(execution_, count * layout_.tiles, [&](std::int64_t task) {
                const std::int64_t head = first + task % count, tile = task / count;
                if (tile_is_seen(problem_, whole_head(head), tile)) pack_tile(head, packed(head, first), tile);
            });
            // From the last block on: under a causal mask the longest come first.
            parallel_for(execution_, count * blocks_, [&](std::int64_t task) {
                const std::int64_t head = first + task % count, n = blocks_ - 1 - task / count;
                const PackedHead keys = packed(head, first);
                const Scratch scratch(row_bytes_);
                attend_rows(problem_, block_of(head, n), &keys, scratch.data());
            });
        }
    }

    const Problem& problem_;
    const Execution& execution_;
    const int threads_;
    const HeadLayout layout_;
    const std::int64_t block_rows_, blocks_;
    const std::size_t row_bytes_;
};

}  // namespace

void attend_packed(const Problem& problem, const Execution& execution) { PackedRun(problem, execution).run(); }

}  // namespace headwise
