// Sleeping until a word changes. Not std::atomic::wait: it cannot wake n sleepers at once, and spins on its own terms.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace headwise {

static_assert(sizeof(std::atomic<std::uint32_t>) == 4 && std::atomic<std::uint32_t>::is_always_lock_free);

// Sleeps while `word` holds `expected`; may return early.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
#if defined(__linux__)
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
#else
    word.wait(expected);
#endif
}

// Wakes up to `sleepers` threads.
inline void futex_wake(std::atomic<std::uint32_t>& word, [[maybe_unused]] int sleepers) noexcept {
#if defined(__linux__)
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
#else
    word.notify_all();
#endif
}

}  // namespace headwise
