// The pool across fork(): the child has lost all threads but one, whatever the others were doing. Each child works under
// an alarm, so that a hang is a failure.
#include <gtest/gtest.h>

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

#include <headwise/tensor.h>

#include "core/parallel.h"
#include "core/storage.h"
#include "core/thread_pool.h"

// Present only in programs built with these sanitizers.
extern "C" [[gnu::weak]] void __tsan_init();
extern "C" [[gnu::weak]] void __asan_init();

namespace headwise {
namespace {

constexpr unsigned kSeconds = 20;

// Sanitizers start threads and map memory in their own way.
bool sanitized() { return __tsan_init != nullptr || __asan_init != nullptr; }

class SkipUnderTsan : public testing::Environment {
    void SetUp() override {
        if (__tsan_init != nullptr) GTEST_SKIP() << "TSan cannot follow threads that are started after a fork";
    }
};
const auto* const kSkipUnderTsan = testing::AddGlobalTestEnvironment(new SkipUnderTsan);

bool computes(int threads) {
    std::vector<int> counts(100);
    parallel_for({.threads = threads}, 100, [&](std::int64_t i) {
        const Scratch scratch(1000);
        scratch.data()[0] = std::byte{1};
        ++counts[static_cast<std::size_t>(i)];
    });
    return counts == std::vector<int>(100, 1);
}

// All `threads` threads take part, so the child did start workers of its own.
bool meets(int threads) {
    std::atomic<int> arrived{0};
    parallel_for({.threads = threads}, threads, [&](std::int64_t) {
        arrived.fetch_add(1);
        while (arrived.load() < threads) std::this_thread::yield();
    });
    return arrived.load() == threads;
}

// True if `body` returned true in a child process in time.
template <class Body>
bool in_child(Body&& body) {
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(kSeconds);
        _exit(body() ? 0 : 1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Fork, WhileThePoolSleeps) {
    EXPECT_TRUE(meets(3));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(in_child([] { return meets(3) && computes(5); }));
    EXPECT_TRUE(meets(3));
}

TEST(Fork, BeforeThePoolWasUsedAndByAThreadOfItsOwn) {
    bool done = false;
    std::thread([&] { done = in_child([] { return meets(2); }); }).join();
    EXPECT_TRUE(done);
}

TEST(Fork, WhileOtherThreadsCompute) {
    if (sanitized()) GTEST_SKIP() << "the allocator of ASan keeps its locks locked across a fork";
    std::atomic<bool> stop{false};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&] {
            while (!stop.load()) computes(4);
        });
    }
    for (int round = 0; round < 30; ++round) {
        EXPECT_TRUE(in_child([] { return computes(4) && meets(2); })) << "round " << round;
    }
    stop.store(true);
    for (std::thread& caller : callers) caller.join();
    EXPECT_TRUE(meets(4));
}

// In the child every slot but the last is held by a caller that no longer exists.
TEST(Fork, WhileCallsAreStuck) {
    // No thread may be on its way into life when we fork: the runtime of ASan holds a lock meanwhile, which the child
    // would inherit. So the worker is there before, and every caller has reached its task.
    EXPECT_TRUE(meets(2));
    std::atomic<bool> release{false};
    std::atomic<int> stuck{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 20; ++caller) {
        callers.emplace_back([&] {
            const std::thread::id own = std::this_thread::get_id();
            parallel_for({.threads = 2}, 2, [&](std::int64_t) {
                if (std::this_thread::get_id() == own) stuck.fetch_add(1);
                while (!release.load()) std::this_thread::yield();
            });
        });
    }
    while (stuck.load() < 20) std::this_thread::yield();
    EXPECT_TRUE(in_child([] { return meets(3); }));
    release.store(true);
    for (std::thread& caller : callers) caller.join();
}

TEST(Fork, NestedForks) {
    EXPECT_TRUE(meets(2));
    EXPECT_TRUE(in_child([] {
        return meets(2) && in_child([] { return meets(3) && in_child([] { return meets(2); }) && meets(3); }) &&
               meets(2);
    }));
    EXPECT_TRUE(meets(2));
}

TEST(Fork, ChildLeavesThroughExit) {
    EXPECT_TRUE(meets(2));
    for (const bool used : {false, true}) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(kSeconds);
            std::exit(used && !meets(2) ? 1 : 0);  // static destructors join what the child started, nothing else
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

// A child made without fork handlers finds the handles of threads that it does not have.
TEST(Fork, CloneWithoutForkHandlers) {
    if (sanitized()) GTEST_SKIP() << "not under sanitizers";
    EXPECT_TRUE(meets(3));
    const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, 0));
    if (child == 0) {
        alarm(kSeconds);
        const bool good = computes(3);
        thread_pool().shut_down();
        _exit(good && computes(3) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Pool, WhereNoThreadCanBeStartedCallsRunOnTheirOwn) {
    if (sanitized()) GTEST_SKIP() << "not under sanitizers";
    EXPECT_TRUE(in_child([] {
        rlimit unlimited{};
        pthread_attr_t usual;
        getrlimit(RLIMIT_AS, &unlimited);
        pthread_getattr_default_np(&usual);

        rlimit nothing = unlimited;
        nothing.rlim_cur = 1;
        pthread_attr_t large = usual;  // larger than the stacks of dead threads that libc keeps
        pthread_attr_setstacksize(&large, std::size_t{1} << 30);
        pthread_setattr_default_np(&large);
        setrlimit(RLIMIT_AS, &nothing);
        std::atomic<int> ran{0};
        parallel_for({.threads = 8}, 8, [&](std::int64_t) { ran.fetch_add(1); });
        const bool alone = ran.load() == 8 && thread_pool().workers() == 0;
        setrlimit(RLIMIT_AS, &unlimited);
        pthread_setattr_default_np(&usual);

        parallel_for({.threads = 8}, 8, [&](std::int64_t) { ran.fetch_add(1); });
        const bool not_tried_again = ran.load() == 16 && thread_pool().workers() == 0;
        set_threads(2);
        return alone && not_tried_again && meets(2);
    }));
}

TEST(Pool, AfterShutDownCallsRunOnTheirOwnThread) {
    EXPECT_TRUE(in_child([] {
        const bool before = meets(4);
        thread_pool().shut_down();
        const auto self = std::this_thread::get_id();
        bool own = true;
        parallel_for({.threads = 4}, 100, [&](std::int64_t) { own = own && std::this_thread::get_id() == self; });
        return before && own && thread_pool().workers() == 0;
    }));
}

// While one thread computes, another ends the process: what exit() destroys must not be needed.
TEST(Pool, ExitWhileOthersCompute) {
    for (int round = 0; round < 10; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(kSeconds);
            for (int caller = 0; caller < 2; ++caller) {
                std::thread([] {
                    for (;;) computes(3);
                }).detach();
            }
            while (thread_pool().workers() == 0) std::this_thread::yield();
            std::exit(0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
    }
}

}  // namespace
}  // namespace headwise
