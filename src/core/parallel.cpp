#include "core/parallel.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/check.h"
#include "core/cpu_count.h"
#include "core/thread_pool.h"
#include "core/work.h"

namespace headwise {
namespace {

std::atomic<int> chosen_threads{0};   // by set_threads(); 0: default_threads
std::atomic<int> default_threads{0};  // by environment or machine; 0: not looked up yet

int look_up_threads() {
    const char* variable = std::getenv("HEADWISE_THREADS");
    const std::string_view value = variable == nullptr ? "" : variable;
    int count = 0;
    if (!value.empty()) {
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
        check(error == std::errc() && end == value.data() + value.size() && count >= 0 && count <= kMaxThreads,
              "environment: HEADWISE_THREADS is '", value, "'; expected a whole number up to ", kMaxThreads,
              " (0 or unset: the CPUs that this process may use)");
    }
    return count > 0 ? count : std::min(available_cpus(), kMaxThreads);
}

// Executors that were ever set. Never freed and never changed, so that a call reads the one in force with one load and
// no lock; setting the same one again adds nothing.
struct KnownExecutor {
    Executor executor;
    KnownExecutor* next;
};
std::atomic<KnownExecutor*> known_executors{nullptr};
std::atomic<const Executor*> process_executor{nullptr};

const Executor* remember(const Executor& executor) {
    KnownExecutor* first = known_executors.load(std::memory_order_acquire);
    for (const KnownExecutor* known = first; known != nullptr; known = known->next) {
        const Executor& other = known->executor;
        if (other.context == executor.context && other.width == executor.width &&
            other.parallel_for == executor.parallel_for) {
            return &other;
        }
    }
    auto* added = new KnownExecutor{executor, first};
    while (!known_executors.compare_exchange_weak(added->next, added, std::memory_order_acq_rel)) {
    }
    return &added->executor;
}

void check_executor(const Executor& executor, const char* where) {
    check(executor.width >= 1, where, ": an executor of width ", executor.width,
          "; expected how many tasks it can run at once, at least 1");
}

// Null: the pool.
const Executor* executor_of(const Execution& execution) {
    const Executor* executor =
        execution.executor != nullptr ? execution.executor : process_executor.load(std::memory_order_acquire);
    return executor != nullptr && executor->parallel_for != nullptr ? executor : nullptr;
}

int width_of(const Execution& execution, const Executor* executor) {
    const int asked = execution.threads;
    check(asked >= 0 && asked <= kMaxThreads, "Execution: threads = ", asked, "; expected 0 to ", kMaxThreads,
          " (0: as many as threads() says)");
    if (Work::inside()) return 1;
    if (executor == nullptr) return asked > 0 ? asked : threads();
    check_executor(*executor, "Execution");
    return asked > 0 ? std::min(asked, executor->width) : executor->width;
}

}  // namespace

void run_tasks(const Execution& execution, std::int64_t tasks, void (*task)(void*, std::int64_t), void* arg) {
    const Executor* executor = executor_of(execution);
    const std::int64_t width = std::min<std::int64_t>(tasks, width_of(execution, executor));
    if (width <= 1) {
        for (std::int64_t i = 0; i < tasks; ++i) task(arg, i);
        return;
    }
    Work work(tasks, task, arg);
    if (executor == nullptr) {
        thread_pool().run(work, static_cast<int>(width) - 1);
    } else {
        // The host gets one long task per thread, not one per tile: that keeps to the width whatever its scheduler does.
        const auto help = [](void* shared, std::int64_t) { static_cast<Work*>(shared)->drain(); };
        executor->parallel_for(executor->context, width, help, &work);
        work.drain();  // what a host that was cancelled half-way left over
    }
    work.rethrow();
}

int thread_count(const Execution& execution) { return width_of(execution, executor_of(execution)); }

int threads() {
    if (const int chosen = chosen_threads.load(std::memory_order_relaxed); chosen > 0) return chosen;
    int count = default_threads.load(std::memory_order_relaxed);
    if (count == 0) {
        count = look_up_threads();
        default_threads.store(count, std::memory_order_relaxed);
    }
    return count;
}

void set_threads(int count) {
    check(count >= 0 && count <= kMaxThreads, "set_threads: ", count, "; expected 0 (choose again) to ",
          kMaxThreads);
    if (count == 0) {
        recount_cpus();
        default_threads.store(look_up_threads(), std::memory_order_relaxed);
    }
    chosen_threads.store(count, std::memory_order_relaxed);
    thread_pool().retry();
}

void set_executor(const Executor& executor) {
    if (executor.parallel_for == nullptr) return process_executor.store(nullptr, std::memory_order_release);
    check_executor(executor, "set_executor");
    process_executor.store(remember(executor), std::memory_order_release);
}

}  // namespace headwise
