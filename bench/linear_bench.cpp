// Packed linear layers against this machine's limits. `of_limit` is the share of the FMA peak (many rows) or of the read
// bandwidth (few rows, weights from memory), the best of all repetitions: other programs can only make it worse.
//
//   linear_bench [--benchmark_filter=M2048]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <headwise/tensor.h>

#include "kernels/dispatch.h"
#include "limits.h"
#include "project/packed_linear.h"

namespace headwise::bench {
namespace {

struct Case {
    const char* name;
    std::int64_t m, n, k;
    DType storage;
    bool cold;  // weights from memory: several layers in turn, together far beyond the last cache
    int threads;
};

constexpr std::int64_t kColdBytes = std::int64_t{160} << 20;

Tensor numbers(std::int64_t rows, std::int64_t columns) {
    Tensor tensor(DType::f32, {rows, columns});
    std::uint32_t state = 1;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
        state = state * 1664525u + 1013904223u;
        tensor.data<float>()[i] = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
    return tensor;
}

void run(benchmark::State& state, const Case& c) {
    const Tensor x = numbers(c.m, c.k), w = numbers(c.n, c.k);
    Tensor y(DType::f32, {c.m, c.n});
    const LinearBand band{w.view(), {}};
    std::vector<PackedLinear> layers;
    do layers.emplace_back(kernels(), std::span(&band, 1), c.storage);
    while (c.cold && static_cast<std::int64_t>(layers.size()) * layers[0].bytes() < kColdBytes);

    const Rows in{x.data<float>(), DType::f32, 1, c.m, 0, c.k};
    const OutRows out{y.data<float>(), DType::f32, 1, c.m, 0, c.n};
    const double operations = 2.0 * static_cast<double>(c.m * c.n * c.k);
    const double bytes = static_cast<double>(c.n * c.k) * static_cast<double>(size_of(c.storage));
    const std::int64_t repeats = std::max<std::int64_t>(1, static_cast<std::int64_t>(2e6 / operations));
    std::size_t next = 0;
    double best = 1e30;
    for (auto _ : state) {
        const auto start = std::chrono::steady_clock::now();
        for (std::int64_t i = 0; i < repeats; ++i) {
            layers[next].run(in, out, {.threads = c.threads});
            next = (next + 1) % layers.size();
        }
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        best = std::min(best, seconds.count() / static_cast<double>(repeats));
        benchmark::DoNotOptimize(y.data<float>());
    }
    state.counters["best_us"] = best * 1e6;
    state.counters["gflops"] = operations / best * 1e-9;
    state.counters["of_limit"] =
        c.cold ? bytes / best / read_bandwidth(c.threads) : operations / best / fma_peak(c.threads);
}

void add(const Case& c) {
    const std::string name = std::string(c.name) + "/M" + std::to_string(c.m) + "/N" + std::to_string(c.n) + "/K" +
                             std::to_string(c.k) + "/" + std::string(name_of(c.storage)) + "/threads" +
                             std::to_string(c.threads);
    benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& state) { run(state, c); })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace headwise::bench

int main(int argc, char** argv) {
    using namespace headwise;
    using namespace headwise::bench;
    for (const int threads : {1, 2}) {
        add({"gemm", 2048, 512, 512, DType::f32, false, threads});
        add({"gemm", 512, 2048, 512, DType::f32, false, threads});
        add({"gemm", 2048, 512, 512, DType::bf16, false, threads});
        add({"gemm", 256, 4096, 4096, DType::f32, false, threads});
        add({"gemm", 197, 768, 768, DType::f32, false, threads});
        add({"gemm", 64, 384, 384, DType::f32, false, threads});
        add({"gemm", 16, 768, 256, DType::f32, false, threads});
        add({"gemm", 1, 64, 64, DType::f32, false, threads});
        add({"gemv", 1, 4096, 4096, DType::f32, true, threads});
        add({"gemv", 1, 4096, 4096, DType::bf16, true, threads});
        add({"gemv", 1, 4096, 4096, DType::f16, true, threads});
        add({"gemv", 2, 4096, 4096, DType::f32, true, threads});
        add({"gemv", 4, 4096, 4096, DType::f32, true, threads});
        add({"gemv", 8, 4096, 4096, DType::f32, true, threads});
        add({"gemv", 16, 4096, 4096, DType::f32, true, threads});
    }
    for (const int threads : {1, 2}) {
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
