#include "core/thread_pool.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/arch.h"
#include "core/cpu_count.h"
#include "core/futex.h"

namespace headwise {
namespace {

// How long idle workers, and callers waiting for the last tasks, stay awake. Waking a sleeper costs about 10 us, and the
// serial stretches between the parallel parts of a layer are shorter than this.
constexpr std::chrono::microseconds kSpin{50};

// A slot's state: how many workers are inside, how many more may join, who holds it.
constexpr std::uint32_t kInside = 1;
constexpr std::uint32_t kInsideMask = 0x1fff;
constexpr std::uint32_t kSeat = 0x2000;
constexpr std::uint32_t kSeatMask = 0x1fff * kSeat;
constexpr std::uint32_t kOwnerSleeps = 1u << 30;
constexpr std::uint32_t kTaken = 1u << 31;
static_assert(kMaxThreads <= 0x1fff && (kInsideMask & kSeatMask) == 0 && (kSeatMask & kOwnerSleeps) == 0);

// Spins until `done()` or the time is up; the clock is read once in about a microsecond.
template <class Done>
bool spin_until(Done&& done) noexcept {
    const auto deadline = std::chrono::steady_clock::now() + kSpin;
    do {
        for (int i = 0; i < 32; ++i) {
            if (done()) return true;
            cpu_relax();
        }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
}

// Blocks the signals that a host handles for the whole process while a thread is started, as the thread keeps its
// starter's mask. Faults and the profiler's clock are about the thread itself and stay open.
class SignalsBlocked {
public:
    SignalsBlocked() noexcept {
        sigset_t blocked;
        sigfillset(&blocked);
        for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
            sigdelset(&blocked, own);
        }
        pthread_sigmask(SIG_SETMASK, &blocked, &saved_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t saved_;
};

constinit ThreadPool pool;

// At exit, and when the shared library is unloaded.
struct ShutDown {
    ~ShutDown() { pool.shut_down(); }
} shut_down_at_exit;

}  // namespace

constinit thread_local bool Work::inside_task = false;

ThreadPool& thread_pool() noexcept { return pool; }

void ThreadPool::run(Work& work, int helpers) noexcept {
    if (helpers > workers()) {
        if (workers() < limit_.load(std::memory_order_relaxed)) grow(helpers);
        helpers = std::min(helpers, workers());
    }
    Slot* slot = helpers > 0 ? publish(work, helpers) : nullptr;
    work.drain();
    if (slot != nullptr) close(*slot);
}

ThreadPool::Slot* ThreadPool::publish(Work& work, int helpers) noexcept {
    for (Slot& slot : slots_) {
        std::uint32_t free = 0;
        if (slot.state.load(std::memory_order_relaxed) != free ||
            !slot.state.compare_exchange_strong(free, kTaken, std::memory_order_acquire,
                                                std::memory_order_relaxed)) {
            continue;
        }
        const bool spin = helpers < available_cpus();
        if (spin != spin_.load(std::memory_order_relaxed)) spin_.store(spin, std::memory_order_relaxed);
        slot.work = &work;
        slot.state.store(kTaken | static_cast<std::uint32_t>(helpers) * kSeat, std::memory_order_release);
        // Against sleeping_ in wait_for_work(): either the worker sees the new epoch, or we see the sleeper.
        epoch_.fetch_add(1, std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_seq_cst) > 0) wake(slot, helpers);
        return &slot;
    }
    return nullptr;
}

// Wakes sleepers for the seats that workers already awake will not fill.
void ThreadPool::wake(const Slot& mine, int helpers) noexcept {
    int awake = workers() - sleeping();
    for (const Slot& slot : slots_) {
        if (&slot != &mine) awake -= static_cast<int>(slot.state.load(std::memory_order_relaxed) & kInsideMask);
    }
    if (helpers > awake) futex_wake(epoch_, helpers - std::max(awake, 0));
}

void ThreadPool::close(Slot& slot) noexcept {
    const auto left = [&slot] { return (slot.state.load(std::memory_order_acquire) & kInsideMask) == 0; };
    slot.state.fetch_and(~kSeatMask, std::memory_order_acquire);
    if (!left() && !(spin_.load(std::memory_order_relaxed) && spin_until(left))) {
        std::uint32_t state = slot.state.fetch_or(kOwnerSleeps, std::memory_order_acquire) | kOwnerSleeps;
        while ((state & kInsideMask) != 0) {
            futex_wait(slot.state, state);
            state = slot.state.load(std::memory_order_acquire);
        }
    }
    slot.state.store(0, std::memory_order_release);
}

// Joins one work that has a seat left; false if there is none. Workers start their search at different slots, so that
// several calls get about equal shares of them.
bool ThreadPool::help(Slot* first) noexcept {
    for (std::size_t i = 0; i < kSlots; ++i) {
        Slot& slot = first + i < slots_.end() ? first[i] : *(first + i - kSlots);
        std::uint32_t state = slot.state.load(std::memory_order_relaxed);
        while ((state & kSeatMask) != 0) {
            if (!slot.state.compare_exchange_weak(state, state + kInside - kSeat, std::memory_order_acquire,
                                                  std::memory_order_relaxed)) {
                continue;
            }
            slot.work->drain();
            // Whoever leaves has seen the last task go: nobody else need come. After this the slot is the owner's.
            state = slot.state.load(std::memory_order_relaxed);
            while (!slot.state.compare_exchange_weak(state, (state & ~kSeatMask) - kInside,
                                                     std::memory_order_release, std::memory_order_relaxed)) {
            }
            if ((state & kOwnerSleeps) != 0 && (state & kInsideMask) == kInside) futex_wake(slot.state, 1);
            return true;
        }
    }
    return false;
}

void ThreadPool::wait_for_work(std::uint32_t seen) noexcept {
    const auto changed = [this, seen] { return epoch_.load(std::memory_order_relaxed) != seen; };
    if (spin_.load(std::memory_order_relaxed) && spin_until(changed)) return;
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(epoch_, seen);
    sleeping_.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadPool::work_loop(Slot* first) noexcept {
    for (;;) {
        const std::uint32_t seen = epoch_.load(std::memory_order_acquire);
        if (stopping_.load(std::memory_order_relaxed)) return;
        if (!help(first)) wait_for_work(seen);
    }
}

// Starts threads until there are `workers`, or as many as the system allows. Where another call is doing so, the workers
// at hand must do: nobody waits here.
void ThreadPool::grow(int workers) noexcept {
    if (growing_.test_and_set(std::memory_order_acquire)) return;
    if (!fork_handler_) {
        fork_handler_ = pthread_atfork(nullptr, nullptr, [] {
                            pool.forget_dead_threads();
                            pool.growing_.clear(std::memory_order_relaxed);
                        }) == 0;
    }
    if (process_ != getpid()) {  // also after a clone() without fork handlers
        forget_dead_threads();
        process_ = getpid();
    }
    while (workers_.load(std::memory_order_relaxed) < workers && !stopping_.load(std::memory_order_seq_cst)) {
        if (!start_worker()) {
            limit_.store(workers_.load(std::memory_order_relaxed), std::memory_order_relaxed);
            break;
        }
    }
    growing_.clear(std::memory_order_release);
}

bool ThreadPool::start_worker() noexcept {
    const SignalsBlocked blocked;
    const auto body = [](void* first) -> void* {
        pool.work_loop(static_cast<Slot*>(first));
        return nullptr;
    };
    const auto index = static_cast<std::size_t>(workers_.load(std::memory_order_relaxed));
    if (pthread_create(&handles_[index], nullptr, body, &slots_[index % kSlots]) != 0) return false;
    pthread_setname_np(handles_[index], "headwise");
    workers_.store(static_cast<int>(index) + 1, std::memory_order_release);
    return true;
}

void ThreadPool::forget_dead_threads() noexcept {
    workers_.store(0, std::memory_order_relaxed);
    sleeping_.store(0, std::memory_order_relaxed);
    for (Slot& slot : slots_) slot.state.store(0, std::memory_order_relaxed);
    retry();
}

void ThreadPool::shut_down() noexcept {
    stopping_.store(true, std::memory_order_seq_cst);
    while (growing_.test_and_set(std::memory_order_acquire)) sched_yield();
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(epoch_, kMaxThreads);
    const auto count = static_cast<std::size_t>(workers_.exchange(0));
    // A child made by clone() runs no fork handlers: its handles name threads of its parent.
    if (process_ != getpid()) return;
    for (std::size_t i = 0; i < count; ++i) {
        if (pthread_equal(handles_[i], pthread_self()) == 0) pthread_join(handles_[i], nullptr);
    }
}

}  // namespace headwise
