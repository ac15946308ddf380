// Stage 2 in place: rotation and norms of head rows in cache. `ns/head` is the time for one head of one token; the angles of
// the public rotate() are computed in every call, once for all heads of a token.
//
//   heads_bench [--benchmark_filter=rotate]
#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>

#include <headwise/heads.h>

namespace headwise::bench {
namespace {

constexpr std::int64_t kTokens = 16, kHeads = 32;

Tensor heads_of(DType dtype, std::int64_t width) {
    Tensor ones(DType::f32, {1, kTokens, kHeads, width});
    for (std::int64_t i = 0; i < ones.count(); ++i) ones.data<float>()[i] = 1.0f + static_cast<float>(i % 7);
    return convert(ones, dtype);
}

template <class Call>
void run(benchmark::State& state, Tensor& x, Call call) {
    for (auto _ : state) {
        call();
        benchmark::DoNotOptimize(x.view().data);
        benchmark::ClobberMemory();
    }
    const auto heads = static_cast<double>(state.iterations() * kTokens * kHeads) * 1e-9;
    state.counters["ns/head"] =
        benchmark::Counter(heads, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

const bool kRegistered = [] {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t width : {64, 128, 256}) {
            const std::string name = std::string(name_of(dtype)) + "/D" + std::to_string(width);
            for (const auto pairs : {Rope::Pairs::half_split, Rope::Pairs::interleaved}) {
                const char* kind = pairs == Rope::Pairs::half_split ? "rotate_half/" : "rotate_interleaved/";
                benchmark::RegisterBenchmark((kind + name).c_str(), [=](benchmark::State& state) {
                    Tensor x = heads_of(dtype, width);
                    run(state, x, [&] { rotate(x, Rope{.pairs = pairs}, {}, 0, {.threads = 1}); });
                });
            }
            for (const auto kind : {HeadNorm::Kind::rms, HeadNorm::Kind::layer_norm}) {
                const char* label = kind == HeadNorm::Kind::rms ? "rms/" : "layer_norm/";
                benchmark::RegisterBenchmark((label + name).c_str(), [=](benchmark::State& state) {
                    Tensor x = heads_of(dtype, width), weight(DType::f32, {width});
                    for (std::int64_t i = 0; i < width; ++i) weight.data<float>()[i] = 1;
                    run(state, x, [&] { normalize(x, {.kind = kind}, weight, {}, {.threads = 1}); });
                });
            }
        }
    }
    return true;
}();

}  // namespace
}  // namespace headwise::bench

BENCHMARK_MAIN();
