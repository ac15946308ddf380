// Few query rows per kv head (decoding, small problems): no packing, and for usual sizes no heap.
#include <algorithm>

#include "attend/rows.h"
#include "core/parallel.h"
#include "core/storage.h"

namespace headwise {
namespace {

// A block of scratch on the stack where that is enough.
template <class Body>
void with_scratch(std::size_t bytes, Body body) {
    constexpr std::size_t kStackBytes = 64 << 10;
    if (bytes <= kStackBytes) {
        alignas(kAlignment) std::byte scratch[kStackBytes];
        body(static_cast<void*>(scratch));
    } else {
        const Scratch scratch(bytes);
        body(scratch.data<void>());
    }
}

RowBlock block_of(const Problem& problem, std::int64_t head) {
    return {head / problem.G, head % problem.G, 0, problem.rows_of_kv_head()};
}

// Fewer heads than keep the threads busy: every piece of the keys is a task.
void attend_in_pieces(const Problem& problem, const Execution& execution) {
    const std::int64_t heads = problem.B * problem.G, pieces = (problem.S + kSplitKeys - 1) / kSplitKeys;
    const std::size_t bytes = row_scratch_bytes(problem, problem.rows_of_kv_head(), false);
    const std::size_t state = state_bytes(problem, problem.rows_of_kv_head());
    const std::int64_t states =
        checked_multiply(heads * pieces, static_cast<std::int64_t>(state), "attend: pieces");
    const Scratch memory(static_cast<std::size_t>(states));
    parallel_for(execution, heads * pieces, [&](std::int64_t task) {
        with_scratch(bytes, [&](void* scratch) {
            attend_piece(problem, block_of(problem, task / pieces), task % pieces,
                         memory.data() + state * static_cast<std::size_t>(task), scratch);
        });
    });
    for (std::int64_t head = 0; head < heads; ++head) {
        with_scratch(bytes, [&](void* scratch) {
            const std::size_t first = state * static_cast<std::size_t>(head * pieces);
            finish_rows(problem, block_of(problem, head), {memory.data() + first, pieces}, scratch);
        });
    }
}

}  // namespace

void attend_direct(const Problem& problem, const Execution& execution) {
    constexpr std::int64_t kTasksPerThread = 4;  // then the last ones to finish cost little
    const std::int64_t heads = problem.B * problem.G, threads = thread_count(execution);
    if (problem.S > kSplitKeys && threads > 1 && heads < kTasksPerThread * threads) {
        return attend_in_pieces(problem, execution);
    }
    const std::size_t bytes = row_scratch_bytes(problem, problem.rows_of_kv_head(), false);
    parallel_for(execution, heads, [&](std::int64_t head) {
        with_scratch(bytes,
                     [&](void* scratch) { attend_rows(problem, block_of(problem, head), nullptr, scratch); });
    });
}

}  // namespace headwise
