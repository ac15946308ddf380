// Work on every token of a batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include <headwise/cpu.h>

#include "core/parallel.h"

namespace headwise {

// f(b, t) for all tokens, shared out in tasks of some 20 us, the price of waking a worker. `width`: elements of a token.
template <class Body>
void for_each_token(std::int64_t batch, std::int64_t tokens, std::int64_t width, const Execution& execution,
                    Body&& body) {
    constexpr std::int64_t kElementsPerTask = 1 << 15;
    const std::int64_t count = batch * tokens;
    const std::int64_t per_task = std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, width));
    parallel_for(execution, (count + per_task - 1) / per_task, [&](std::int64_t task) {
        for (std::int64_t i = task * per_task; i < std::min(count, (task + 1) * per_task); ++i)
            body(i / tokens, i % tokens);
    });
}

}  // namespace headwise
