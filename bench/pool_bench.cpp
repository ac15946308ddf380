// What it costs to hand work to the pool: an empty job while the workers spin, and after they have gone to sleep.
#include <benchmark/benchmark.h>

#include <thread>

#include "core/parallel.h"

namespace {

// Every thread gets one empty task. Argument: threads.
void empty_job_hot(benchmark::State& state) {
    const headwise::Execution execution{.threads = static_cast<int>(state.range(0))};
    for (auto _ : state) headwise::parallel_for(execution, execution.threads, [](std::int64_t) {});
}
BENCHMARK(empty_job_hot)->Arg(1)->Arg(2)->Arg(4)->Arg(16)->UseRealTime();

// The same after a pause that is longer than the workers spin: the caller's cost of waking them.
void empty_job_asleep(benchmark::State& state) {
    const headwise::Execution execution{.threads = static_cast<int>(state.range(0))};
    for (auto _ : state) {
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        const auto begin = std::chrono::steady_clock::now();
        headwise::parallel_for(execution, execution.threads, [](std::int64_t) {});
        state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
}
BENCHMARK(empty_job_asleep)->Arg(2)->Arg(4)->UseManualTime()->Iterations(500);

// There and back: two tasks that wait for each other, so that both threads must have come.
void meeting(benchmark::State& state) {
    const headwise::Execution execution{.threads = 2};
    const bool asleep = state.range(0) != 0;
    for (auto _ : state) {
        if (asleep) std::this_thread::sleep_for(std::chrono::microseconds(500));
        const auto begin = std::chrono::steady_clock::now();
        std::atomic<int> arrived{0};
        headwise::parallel_for(execution, 2, [&](std::int64_t) {
            arrived.fetch_add(1, std::memory_order_relaxed);
            while (arrived.load(std::memory_order_relaxed) < 2) {
            }
        });
        state.SetIterationTime(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
}
BENCHMARK(meeting)->ArgName("asleep")->Arg(0)->UseManualTime()->Iterations(200000);
BENCHMARK(meeting)->ArgName("asleep")->Arg(1)->UseManualTime()->Iterations(500);

}  // namespace

BENCHMARK_MAIN();
