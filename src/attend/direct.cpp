// Few query rows per kv head (decoding, small problems): no packing, and for usual sizes no heap.
#include <algorithm>

#include "attend/rows.h"
#include "core/parallel.h"
#include "core/storage.h"

namespace headwise {

void attend_direct(const Problem& problem, const Execution& execution) {
    constexpr std::size_t kStackBytes = 64 << 10;
    const std::int64_t rows = problem.rows_of_kv_head();
    const std::size_t bytes = row_scratch_bytes(problem, rows, false);
    parallel_for(execution, problem.B * problem.G, [&](std::int64_t task) {
        const RowBlock block{task / problem.G, task % problem.G, 0, rows};
        if (bytes <= kStackBytes) {
            alignas(kAlignment) std::byte scratch[kStackBytes];
            attend_rows(problem, block, nullptr, scratch);
        } else {
            const Scratch scratch(bytes);
            attend_rows(problem, block, nullptr, scratch.data());
        }
    });
}

}  // namespace headwise
