// The thread pool and its replacement by the host's threads: every task exactly once, whoever calls and however often.
#include "core/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfenv>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include <headwise/error.h>

#include "core/arch.h"
#include "core/thread_pool.h"

namespace headwise {
namespace {

constexpr int kThreadCounts[] = {1, 2, 3, 5, 7, 16, 64};

// How often each of `tasks` tasks ran.
class Tally {
public:
    explicit Tally(std::int64_t tasks) : counts_(static_cast<std::size_t>(tasks)) {}
    void add(std::int64_t task) { counts_.at(static_cast<std::size_t>(task)).fetch_add(1); }
    bool each_ran(int times) const {
        for (const auto& count : counts_) {
            if (count.load() != times) return false;
        }
        return true;
    }

private:
    std::vector<std::atomic<int>> counts_;
};

bool runs_each_once(const Execution& execution, std::int64_t tasks) {
    Tally tally(tasks);
    parallel_for(execution, tasks, [&](std::int64_t i) { tally.add(i); });
    return tally.each_ran(1);
}

// Starts with the settings of a fresh process, and leaves them so.
class ParallelTest : public testing::Test {
protected:
    void SetUp() override { reset(); }
    void TearDown() override { reset(); }

private:
    static void reset() {
        unsetenv("HEADWISE_THREADS");
        set_threads(0);
        set_executor({});
    }
};

using Parallel = ParallelTest;

TEST_F(Parallel, EveryTaskRunsOnce) {
    for (const int threads : kThreadCounts) {
        for (const std::int64_t tasks : {0, 1, 2, 3, 7, 64, 1000}) {
            EXPECT_TRUE(runs_each_once({.threads = threads}, tasks))
                << threads << " threads, " << tasks << " tasks";
        }
    }
}

TEST_F(Parallel, TasksSpreadOverAsManyThreadsAsAskedFor) {
    // Each task waits for all the others: done only if all run at once.
    for (const int threads : {2, 3, 5}) {
        std::atomic<int> arrived{0};
        parallel_for({.threads = threads}, threads, [&](std::int64_t) {
            arrived.fetch_add(1);
            while (arrived.load() < threads) std::this_thread::yield();
        });
        EXPECT_EQ(arrived.load(), threads);
    }
}

TEST_F(Parallel, IdleWorkersFallAsleepAndAreWoken) {
    EXPECT_TRUE(runs_each_once({.threads = 4}, 100));
    for (int wait = 0; wait < 5000 && thread_pool().sleeping() < thread_pool().workers(); ++wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(thread_pool().sleeping(), thread_pool().workers());
    std::atomic<int> arrived{0};
    parallel_for({.threads = 4}, 4, [&](std::int64_t) {
        arrived.fetch_add(1);
        while (arrived.load() < 4) std::this_thread::yield();
    });
}

TEST_F(Parallel, NeverMoreThreadsThanAskedFor) {
    EXPECT_TRUE(
        runs_each_once({.threads = 16}, 1000));  // the pool now has more workers than the next calls may use
    for (const int threads : {1, 2, 3}) {
        std::atomic<int> inside{0};
        std::atomic<int> most{0};
        parallel_for({.threads = threads}, 200, [&](std::int64_t) {
            const int now = inside.fetch_add(1) + 1;
            for (int seen = most.load(); seen < now && !most.compare_exchange_weak(seen, now);) {
            }
            std::this_thread::yield();
            inside.fetch_sub(1);
        });
        EXPECT_LE(most.load(), threads);
    }
}

TEST_F(Parallel, FewTasksStartNoThreads) {
    const auto caller = std::this_thread::get_id();
    const int workers = thread_pool().workers();
    parallel_for({.threads = 64}, 1, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
    parallel_for({.threads = 1}, 50, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), caller); });
    EXPECT_EQ(thread_pool().workers(), workers);
}

TEST_F(Parallel, NestedCallsRunInline) {
    Tally tally(8 * 8);
    parallel_for({.threads = 4}, 8, [&](std::int64_t outer) {
        const auto self = std::this_thread::get_id();
        EXPECT_EQ(thread_count({.threads = 4}), 1);
        parallel_for({.threads = 4}, 8, [&](std::int64_t inner) {
            EXPECT_EQ(std::this_thread::get_id(), self);
            tally.add(outer * 8 + inner);
        });
    });
    EXPECT_TRUE(tally.each_ran(1));
    EXPECT_EQ(thread_count({.threads = 4}), 4);
}

TEST_F(Parallel, ManyCallersAtOnce) {
    constexpr int kCallers = 24;  // more than the pool has slots
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
        callers.emplace_back([caller, &wrong] {
            for (int round = 0; round < 60; ++round) {
                const int threads =
                    kThreadCounts[static_cast<std::size_t>(caller + round) % std::size(kThreadCounts)];
                if (!runs_each_once({.threads = threads}, 1 + (round * 7 + caller) % 40)) ++wrong;
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong.load(), 0);
}

TEST_F(Parallel, AStuckCallHoldsUpNobodyElse) {
    std::atomic<bool> release{false};
    std::atomic<int> stuck{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 20; ++caller) {  // takes every slot and every worker
        callers.emplace_back([&] {
            parallel_for({.threads = 2}, 2, [&](std::int64_t) {
                stuck.fetch_add(1);
                while (!release.load()) std::this_thread::yield();
            });
        });
    }
    while (stuck.load() < 20) std::this_thread::yield();
    EXPECT_TRUE(runs_each_once({.threads = 4}, 100));
    release.store(true);
    for (std::thread& caller : callers) caller.join();
}

TEST_F(Parallel, ThreadCountChangesWhileOthersCompute) {
    std::atomic<bool> stop{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&] {
            while (!stop.load()) wrong += runs_each_once({}, 37) ? 0 : 1;
        });
    }
    for (int round = 0; round < 100; ++round) {
        set_threads(1 + round % 9);
        EXPECT_EQ(threads(), 1 + round % 9);
        std::this_thread::yield();
    }
    stop.store(true);
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(wrong.load(), 0);
}

TEST_F(Parallel, TheFirstFailureReachesTheCaller) {
    for (const int threads : kThreadCounts) {
        std::atomic<int> ran{0};
        EXPECT_THROW(parallel_for({.threads = threads}, 1000,
                                  [&](std::int64_t i) {
                                      ran.fetch_add(1);
                                      if (i == 3) throw std::runtime_error("no memory");
                                  }),
                     std::runtime_error);
        EXPECT_GE(ran.load(), 1);
        EXPECT_TRUE(runs_each_once({.threads = threads}, 100));
    }
}

// ---- the number of threads ---------------------------------------------------------------------------------

TEST_F(Parallel, ThreadsComeFromCallThenSettingThenEnvironmentThenMachine) {
    const int machine = threads();
    EXPECT_GE(machine, 1);
    setenv("HEADWISE_THREADS", "3", 1);
    EXPECT_EQ(threads(), machine);  // looked up once
    set_threads(0);
    EXPECT_EQ(threads(), 3);
    set_threads(5);
    EXPECT_EQ(threads(), 5);
    EXPECT_EQ(thread_count({}), 5);
    EXPECT_EQ(thread_count({.threads = 7}), 7);
    set_threads(0);
    EXPECT_EQ(threads(), 3);
    setenv("HEADWISE_THREADS", "0", 1);
    set_threads(0);
    EXPECT_EQ(threads(), machine);
}

TEST_F(Parallel, RefusesImpossibleThreadCounts) {
    EXPECT_THROW(set_threads(-1), Error);
    EXPECT_THROW(set_threads(4097), Error);
    EXPECT_THROW(runs_each_once({.threads = -1}, 5), Error);
    EXPECT_THROW(thread_count({.threads = 4097}), Error);
    set_threads(2);
    for (const char* value : {"two", "-1", "4097", "2x", " 2", "99999999999999999999"}) {
        setenv("HEADWISE_THREADS", value, 1);
        EXPECT_THROW(set_threads(0), Error) << value;
        EXPECT_EQ(threads(), 2) << "a refused setting changes nothing";
    }
}

// ---- the host's threads ------------------------------------------------------------------------------------

// A host that starts one thread per task.
struct Host {
    std::atomic<int> calls{0};
    std::atomic<std::int64_t> most_tasks{0};
    bool forgetful = false;  // runs only the first task

    static void parallel_for(void* context, std::int64_t tasks, void (*task)(void*, std::int64_t), void* arg) {
        auto* host = static_cast<Host*>(context);
        host->calls.fetch_add(1);
        if (tasks > host->most_tasks.load()) host->most_tasks.store(tasks);
        std::vector<std::thread> workers;
        const std::int64_t started = host->forgetful ? 1 : tasks;
        for (std::int64_t i = 0; i < started; ++i) workers.emplace_back(task, arg, i);
        for (std::thread& worker : workers) worker.join();
    }
    Executor executor(int width) { return {.context = this, .width = width, .parallel_for = parallel_for}; }
};

TEST_F(Parallel, ExecutorOfOneCall) {
    Host host;
    const Executor executor = host.executor(3);
    EXPECT_EQ(thread_count({.executor = &executor}), 3);
    EXPECT_TRUE(runs_each_once({.executor = &executor}, 100));
    EXPECT_EQ(host.calls.load(), 1);
    EXPECT_EQ(host.most_tasks.load(), 3) << "one task per thread of the host";
    EXPECT_TRUE(runs_each_once({.threads = 2, .executor = &executor}, 100));
    EXPECT_EQ(host.calls.load(), 2);
    EXPECT_TRUE(runs_each_once({.threads = 1, .executor = &executor}, 100));
    EXPECT_TRUE(runs_each_once({.executor = &executor}, 1));
    EXPECT_EQ(host.calls.load(), 2) << "nothing to share out";
    EXPECT_TRUE(runs_each_once({.threads = 4}, 100));
    EXPECT_EQ(host.calls.load(), 2) << "only where it is named";
}

TEST_F(Parallel, ExecutorOfTheProcess) {
    Host host, other;
    const Executor named = other.executor(2);
    const Executor pool;
    set_executor(host.executor(4));
    EXPECT_EQ(thread_count({}), 4);
    EXPECT_TRUE(runs_each_once({}, 50));
    EXPECT_EQ(host.calls.load(), 1);
    EXPECT_TRUE(runs_each_once({.executor = &named}, 50));
    EXPECT_EQ(other.calls.load(), 1);
    EXPECT_TRUE(runs_each_once({.threads = 2, .executor = &pool}, 50)) << "a default-made Executor is the pool";
    EXPECT_EQ(host.calls.load(), 1);
    set_executor({});
    EXPECT_TRUE(runs_each_once({.threads = 4}, 50));
    EXPECT_EQ(host.calls.load(), 1);
    EXPECT_THROW(set_executor(host.executor(0)), Error);
    const Executor narrow = host.executor(-1);
    EXPECT_THROW(runs_each_once({.executor = &narrow}, 50), Error);
}

TEST_F(Parallel, NestedCallsRunInlineOnTheHostsThreads) {
    Host host;
    const Executor executor = host.executor(3);
    parallel_for({.executor = &executor}, 6, [&](std::int64_t) {
        const auto self = std::this_thread::get_id();
        parallel_for({.threads = 4}, 4, [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), self); });
        parallel_for({.executor = &executor}, 4,
                     [&](std::int64_t) { EXPECT_EQ(std::this_thread::get_id(), self); });
    });
    EXPECT_EQ(host.calls.load(), 1);
}

TEST_F(Parallel, FailuresAndForgottenTasksUnderAHost) {
    Host host;
    const Executor executor = host.executor(3);
    EXPECT_THROW(parallel_for({.executor = &executor}, 100,
                              [](std::int64_t i) {
                                  if (i == 40) throw std::runtime_error("no memory");
                              }),
                 std::runtime_error);
    host.forgetful = true;
    EXPECT_TRUE(runs_each_once({.executor = &executor}, 100));
}

// ---- the floating-point environment --------------------------------------------------------------------------

TEST_F(Parallel, EveryThreadComputesInTheEnvironmentOfTheCaller) {
    Host host;
    const Executor executor = host.executor(3);
    const std::uint64_t usual = fp_control();
    EXPECT_TRUE(runs_each_once({.threads = 3}, 10));  // the workers exist before the mode changes
    for (const Execution& execution : {Execution{.threads = 3}, Execution{.executor = &executor}}) {
        for (const int mode : {FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST}) {
            std::fesetround(mode);
            const std::uint64_t mine = fp_control();
            std::atomic<int> arrived{0};
            std::atomic<int> others{0};
            parallel_for(execution, 3, [&](std::int64_t) {
                arrived.fetch_add(1);
                while (arrived.load() < 3) std::this_thread::yield();  // all three threads take part
                if (fp_control() != mine) others.fetch_add(1);
            });
            EXPECT_EQ(others.load(), 0);
            EXPECT_EQ(fp_control(), mine) << "the caller's environment is its own";
        }
    }
    EXPECT_EQ(fp_control(), usual);
}

}  // namespace
}  // namespace headwise
