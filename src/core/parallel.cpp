#include "core/parallel.h"

namespace headwise {

void run_tasks(const Execution&, std::int64_t tasks, void (*task)(void*, std::int64_t), void* arg) {
    for (std::int64_t i = 0; i < tasks; ++i) task(arg, i);
}

int thread_count(const Execution& execution) { return execution.threads > 0 ? execution.threads : 1; }

}  // namespace headwise
