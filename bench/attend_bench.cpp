// attend() against this machine's limits. `of_limit` is the share of the FMA peak (prefill, small: 2 * (D + Dv) operations
// for every visible pair) or of the read bandwidth (decode: bytes of all keys and values), the best of all repetitions:
// other programs can only make it worse. One thread is timed by its own CPU clock, so that it may be interrupted.
//
//   attend_bench [--benchmark_filter=prefill]
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <headwise/attend.h>

#include "kernels/dispatch.h"
#include "limits.h"

namespace headwise::bench {
namespace {

struct Case {
    const char* name;
    std::int64_t B, H, G, D, T, S;
    bool causal = false;
    bool head_major = true;
    DType dtype = DType::f32;
    bool decode = false;  // judged by bandwidth, with keys and values from memory
};

constexpr std::int64_t kColdBytes = std::int64_t{160} << 20;

Tensor numbers(std::int64_t count, DType dtype) {
    Tensor tensor(DType::f32, {count});
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < count; ++i) {
        state = state * 1664525u + 1013904223u;
        tensor.data<float>()[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
    return convert(tensor, dtype);
}

double seconds(clockid_t clock) {
    timespec now{};
    clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// [B,N,heads,D] of either layout, number `index` of several that lie in one tensor.
template <class View>
View view_of(View all, const Case& c, std::int64_t N, std::int64_t heads, std::int64_t index) {
    const std::int64_t count = c.B * N * heads * c.D;
    const auto data = all.slice(0, index * count, count).data;
    if (c.head_major) return View(data, all.dtype, {c.B, heads, N, c.D}).swap_axes(1, 2);
    return View(data, all.dtype, {c.B, N, heads, c.D});
}

void run(benchmark::State& state, const Case& c, int threads) {
    const std::int64_t cache = c.B * c.S * c.G * c.D;
    const double cache_bytes = 2.0 * static_cast<double>(cache) * static_cast<double>(size_of(c.dtype));
    const auto copies = c.decode ? 1 + static_cast<std::int64_t>(kColdBytes / cache_bytes) : 1;
    const Tensor q = numbers(c.B * c.T * c.H * c.D, c.dtype);
    const Tensor k = numbers(copies * cache, c.dtype), v = numbers(copies * cache, c.dtype);
    Tensor out(c.dtype, {c.B * c.T * c.H * c.D});
    AttendInputs in;
    in.q = view_of(ConstTensorView(q.view()), c, c.T, c.H, 0);
    if (c.causal) in.mask = causal();
    const AttendOutputs to{.out = view_of(out.view(), c, c.T, c.H, 0)};

    const double pairs =
        static_cast<double>(c.B * c.H) *
        (static_cast<double>(c.T * c.S) - (c.causal ? static_cast<double>(c.T * (c.T - 1) / 2) : 0.0));
    const double operations = 4.0 * static_cast<double>(c.D) * pairs;
    const std::int64_t repeats = std::max<std::int64_t>(1, static_cast<std::int64_t>(2e6 / operations));
    const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    std::int64_t next = 0;
    double best = 1e30;
    for (auto _ : state) {
        const double start = seconds(clock);
        for (std::int64_t i = 0; i < repeats; ++i) {
            in.k = view_of(ConstTensorView(k.view()), c, c.S, c.G, next);
            in.v = view_of(ConstTensorView(v.view()), c, c.S, c.G, next);
            attend(in, to, {.threads = threads});
            next = (next + 1) % copies;
        }
        best = std::min(best, (seconds(clock) - start) / static_cast<double>(repeats));
        benchmark::DoNotOptimize(out.data<float>());
    }
    state.counters["best_us"] = best * 1e6;
    state.counters["of_limit"] =
        c.decode ? cache_bytes / best / read_bandwidth(threads) : operations / best / fma_peak(threads);
    state.SetLabel(attend_path(in).name);
}

void add(const Case& c, int threads) {
    using std::to_string;
    const std::string name = std::string(c.name) + "/B" + to_string(c.B) + "/H" + to_string(c.H) + "/G" +
                             to_string(c.G) + "/D" + to_string(c.D) + "/T" + to_string(c.T) + "/S" +
                             to_string(c.S) + (c.causal ? "/causal" : "") + (c.head_major ? "" : "/token_major") +
                             "/" + std::string(name_of(c.dtype)) + "/threads" + to_string(threads);
    benchmark::RegisterBenchmark(name.c_str(), [c, threads](benchmark::State& state) { run(state, c, threads); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

const Case kCases[] = {
    {.name = "prefill", .B = 1, .H = 32, .G = 8, .D = 128, .T = 2048, .S = 2048, .causal = true},
    {.name = "prefill",
     .B = 1,
     .H = 32,
     .G = 8,
     .D = 128,
     .T = 2048,
     .S = 2048,
     .causal = true,
     .head_major = false},
    {.name = "prefill",
     .B = 1,
     .H = 32,
     .G = 8,
     .D = 128,
     .T = 2048,
     .S = 2048,
     .causal = true,
     .dtype = DType::bf16},
    {.name = "prefill", .B = 4, .H = 8, .G = 8, .D = 64, .T = 512, .S = 512},
    {.name = "prefill", .B = 16, .H = 12, .G = 12, .D = 32, .T = 128, .S = 128},
    {.name = "prefill", .B = 8, .H = 12, .G = 12, .D = 64, .T = 197, .S = 197},
    {.name = "prefill", .B = 1, .H = 9, .G = 3, .D = 64, .T = 1024, .S = 1024, .causal = true},
    {.name = "prefill", .B = 1, .H = 4, .G = 1, .D = 256, .T = 1024, .S = 1024, .causal = true},
    {.name = "decode", .B = 1, .H = 32, .G = 8, .D = 128, .T = 1, .S = 16384, .decode = true},
    {.name = "decode", .B = 1, .H = 32, .G = 1, .D = 128, .T = 1, .S = 16384, .decode = true},
    {.name = "decode", .B = 1, .H = 32, .G = 32, .D = 128, .T = 1, .S = 4096, .decode = true},
    {.name = "decode",
     .B = 1,
     .H = 32,
     .G = 32,
     .D = 128,
     .T = 1,
     .S = 4096,
     .dtype = DType::bf16,
     .decode = true},
    {.name = "decode", .B = 4, .H = 9, .G = 3, .D = 64, .T = 1, .S = 2048, .decode = true},
    {.name = "small", .B = 1, .H = 1, .G = 1, .D = 16, .T = 1, .S = 8},
    {.name = "small", .B = 1, .H = 4, .G = 4, .D = 16, .T = 8, .S = 8},
    {.name = "small", .B = 1, .H = 12, .G = 12, .D = 32, .T = 12, .S = 12},
    {.name = "small", .B = 1, .H = 12, .G = 12, .D = 32, .T = 24, .S = 24},
};

}  // namespace
}  // namespace headwise::bench

int main(int argc, char** argv) {
    using namespace headwise;
    using namespace headwise::bench;
    for (const int threads : {1, 2}) {
        for (const Case& c : kCases) add(c, threads);
        benchmark::AddCustomContext("fma_gflops_" + std::to_string(threads),
                                    std::to_string(fma_peak(threads) * 1e-9));
        benchmark::AddCustomContext("read_gbs_" + std::to_string(threads),
                                    std::to_string(read_bandwidth(threads) * 1e-9));
    }
    benchmark::AddCustomContext("isa", kernels().isa);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
