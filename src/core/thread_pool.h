// headwise's own worker threads.
//
// A call puts its Work into a free slot, bumps `epoch_` and starts on the tasks itself. Workers that see the epoch change
// join the slots that still have seats. When no task is left to start, the caller takes the remaining seats away and
// waits only for those who joined: a worker that wakes late, or never (it died in a fork), holds nobody up. A caller
// that finds every slot taken works alone.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "core/work.h"

namespace headwise {

inline constexpr int kMaxThreads = 4096;

// Every member is trivially destructible and the one object is never destroyed, so that threads which still compute
// while static objects die find it whole.
class ThreadPool {
public:
    // Drains `work` on the calling thread and on up to `helpers` workers, and returns when all have left it.
    void run(Work& work, int helpers) noexcept;

    // After a thread could not be started, the pool stays as small as it is until this is called.
    void retry() noexcept { limit_.store(kMaxThreads - 1, std::memory_order_relaxed); }

    int workers() const noexcept { return workers_.load(std::memory_order_acquire); }
    int sleeping() const noexcept { return static_cast<int>(sleeping_.load(std::memory_order_relaxed)); }

    void forget_dead_threads() noexcept;  // in the child of a fork, where only the forking thread lives on
    void shut_down() noexcept;            // joins the workers; later calls run on their own thread

private:
    static constexpr std::size_t kSlots = 16;  // calls that can share the workers at one time

    struct alignas(64) Slot {
        std::atomic<std::uint32_t> state{0};
        Work* work = nullptr;
    };

    Slot* publish(Work& work, int helpers) noexcept;
    void wake(const Slot& mine, int helpers) noexcept;
    void close(Slot& slot) noexcept;
    bool help(Slot* first) noexcept;
    void wait_for_work(std::uint32_t seen) noexcept;
    void work_loop(Slot* first) noexcept;
    void grow(int workers) noexcept;
    bool start_worker() noexcept;

    alignas(64) std::atomic<std::uint32_t> epoch_{0};     // changes with every published work; workers sleep on it
    alignas(64) std::atomic<std::uint32_t> sleeping_{0};  // workers asleep, or just about to be
    alignas(64) std::atomic<int> workers_{0};             // started
    std::atomic<int> limit_{kMaxThreads - 1};             // no more are tried
    std::atomic<bool> spin_{true};                        // false: the last work had more threads than CPUs
    std::atomic<bool> stopping_{false};
    std::atomic_flag growing_ = ATOMIC_FLAG_INIT;
    bool fork_handler_ = false;  // with handles_ and process_: of the holder of growing_
    pid_t process_ = 0;          // where the workers live
    std::array<Slot, kSlots> slots_{};
    std::array<pthread_t, kMaxThreads> handles_{};
};

ThreadPool& thread_pool() noexcept;

}  // namespace headwise
