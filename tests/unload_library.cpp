// What unload_test loads and unloads.
#include <atomic>

#include "core/parallel.h"
#include "core/storage.h"

// Sums the numbers below 100 on `threads` threads that all take part.
extern "C" [[gnu::visibility("default")]] int use_headwise(int threads);
extern "C" int use_headwise(int threads) {
    std::atomic<int> arrived{0};
    headwise::parallel_for({.threads = threads}, threads, [&](std::int64_t) {
        const headwise::Scratch scratch(100);
        arrived.fetch_add(1);
        while (arrived.load() < threads) {
        }
    });
    std::atomic<int> sum{0};
    headwise::parallel_for({.threads = threads}, 100, [&](std::int64_t i) { sum += static_cast<int>(i); });
    return sum.load();
}
