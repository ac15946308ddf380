// For programs that must not ask for much: the largest request of any `new`. Include it in one file of a program.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

// Since it was last set to 0.
inline std::atomic<std::size_t> largest_new{0};

inline void note_request(std::atomic<std::size_t>& largest, std::size_t bytes) {
    if (bytes > largest) largest = bytes;
}

// Not inlined: GCC warns of a mismatch where it sees only half of the pair.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
    note_request(largest_new, bytes);
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
