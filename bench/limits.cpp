#include "limits.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/dispatch.h"

namespace headwise::bench {
namespace {

// Short repeats, many of them: one that no other program disturbs is enough.
constexpr std::int64_t kRounds = 200'000;
constexpr std::int64_t kReadFloats = std::int64_t{1} << 27;  // 512 MiB, read in windows that take turns
constexpr std::int64_t kWindows = 8;
constexpr int kFmaRepeats = 500, kReadRepeats = 100;

std::atomic<float> sink;  // what the loops return goes here, so that they are not optimised away

// The shortest time in which `threads` threads together run body(0, repeat) ... body(threads - 1, repeat). The same
// threads run all
// repeats and spin in between: a thread that has just started often shares a core with its parent for milliseconds.
template <class Body>
double best_seconds(int threads, int repeats, const Body& body) {
    std::atomic<int> round{0}, done{0};
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) {
        others.emplace_back([&, i] {
            for (int mine = 1; mine <= repeats; ++mine) {
                while (round.load(std::memory_order_acquire) < mine) {
                    std::this_thread::yield();
                }
                body(i, mine);
                done.fetch_add(1, std::memory_order_release);
            }
        });
    }
    double best = 1e30;
    for (int repeat = 1; repeat <= repeats; ++repeat) {
        const auto start = std::chrono::steady_clock::now();
        round.store(repeat, std::memory_order_release);
        body(0, repeat);
        while (done.load(std::memory_order_acquire) < repeat * (threads - 1)) {
            std::this_thread::yield();
        }
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    for (std::thread& other : others) other.join();
    return best;
}

double measure_fma(int threads) {
    const KernelTable& table = kernels();
    const double operations = 2.0 * static_cast<double>(kRounds * kMeasureChains * table.lanes) * threads;
    const double seconds =
        best_seconds(threads, kFmaRepeats, [&](int, int) { sink = table.measure.fma_loop(kRounds); });
    return operations / seconds;
}

double measure_read(int threads) {
    const KernelTable& table = kernels();
    const std::size_t bytes = static_cast<std::size_t>(kReadFloats) * sizeof(float);
    struct Free {
        void operator()(float* p) const { std::free(p); }
    };
    const std::unique_ptr<float, Free> memory(
        static_cast<float*>(std::aligned_alloc(std::size_t{1} << 21, bytes)));
    if (!memory) return 0;
    madvise(memory.get(), bytes, MADV_HUGEPAGE);
    std::fill_n(memory.get(), kReadFloats, 1.0f);

    double best = 0;
    for (const std::int64_t piece : {kMeasureStep, std::int64_t{4096}}) {
        const std::int64_t unit = kMeasureStreams * piece;
        const std::int64_t share = kReadFloats / kWindows / threads / unit * unit;
        const double seconds = best_seconds(threads, kReadRepeats, [&](int thread, int repeat) {
            const float* window = memory.get() + repeat % kWindows * (kReadFloats / kWindows);
            sink = table.measure.read_loop(window + thread * share, share, piece);
        });
        best = std::max(best, static_cast<double>(share * threads) * sizeof(float) / seconds);
    }
    return best;
}

template <class Measure>
double once(std::map<int, double>& known, int threads, Measure measure) {
    const auto [place, added] = known.try_emplace(threads, 0.0);
    if (added) place->second = measure(threads);
    return place->second;
}

}  // namespace

double fma_peak(int threads) {
    static std::map<int, double> known;
    return once(known, threads, measure_fma);
}

double read_bandwidth(int threads) {
    static std::map<int, double> known;
    return once(known, threads, measure_read);
}

}  // namespace headwise::bench
