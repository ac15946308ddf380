// Whole layers of real checkpoints, x to y: time beside the least time that the arithmetic needs on this machine.
//   layer_bench DIR...     directories with config.json, weights and hidden.safetensors (samples/README.md)
// Each layer runs on the longest stored input, and on the same rows repeated to kLongTokens.
#include <headwise/headwise.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "limits.h"

namespace {

namespace hw = headwise;
constexpr std::int64_t kLongTokens = 512;
constexpr double kSecondsPerCase = 0.15;

// Multiplications and additions of one sequence: four projections, and QK and PV over the visible pairs.
double operations(const hw::MhaConfig& config, std::int64_t tokens) {
    const auto n = static_cast<double>(tokens);
    const std::int64_t rows = (config.heads + config.kv_heads) * (config.head_dim + config.value_dim);
    const double projections = n * static_cast<double>(config.embed_dim * rows);
    const double pairs = config.mask.causal ? n * (n + 1) / 2 : n * n;
    const double attention = pairs * static_cast<double>(config.heads * (config.head_dim + config.value_dim));
    return 2 * (projections + attention);
}

// The longest rank-2 input of this layer.
hw::Tensor longest_input(const hw::TensorFile& file, std::int64_t layer) {
    const std::string ending = ".layer" + std::to_string(layer) + ".in";
    std::string best;
    std::int64_t tokens = 0;
    for (const std::string& name : file.names()) {
        const hw::TensorInfo info = *file.find(name);
        if (!name.ends_with(ending) || info.sizes.size() != 2 || info.sizes[0] <= tokens) continue;
        best = name;
        tokens = info.sizes[0];
    }
    return hw::convert(file.load(best).view(), hw::DType::f32);
}

hw::Tensor repeat_rows(const hw::Tensor& x, std::int64_t tokens) {
    const std::int64_t rows = x.view().size(0), width = x.view().size(1);
    hw::Tensor longer(hw::DType::f32, {tokens, width});
    const auto bytes = static_cast<std::size_t>(width) * sizeof(float);
    for (std::int64_t row = 0; row < tokens; ++row) {
        std::memcpy(static_cast<float*>(longer.view().data) + row * width,
                    static_cast<const float*>(x.view().data) + row % rows * width, bytes);
    }
    return longer;
}

double best_seconds(const hw::MultiHeadAttention& block, const hw::Tensor& x) {
    hw::Tensor y = block.forward(x.view());
    double best = 1e9, total = 0;
    while (total < kSecondsPerCase) {
        const auto start = std::chrono::steady_clock::now();
        block.forward(x.view(), y.view());
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        best = std::min(best, took.count());
        total += took.count();
    }
    return best;
}

void measure(const std::string& directory, std::int64_t layer, double peak) {
    const hw::MultiHeadAttention block = hw::load_attention(directory, {.layer = layer});
    const hw::Tensor stored = longest_input(hw::TensorFile(directory + "/hidden.safetensors"), layer);
    const hw::Tensor repeated = repeat_rows(stored, kLongTokens);
    for (const hw::Tensor* x : {&stored, &repeated}) {
        const std::int64_t tokens = x->view().size(0);
        const double seconds = best_seconds(block, *x);
        const double limit = operations(block.config(), tokens) / peak;
        std::printf("%-18s %5lld %7lld %10.3f %10.3f %9.0f %%\n", directory.c_str(), static_cast<long long>(layer),
                    static_cast<long long>(tokens), seconds * 1e3, limit * 1e3, 100 * limit / seconds);
    }
}

}  // namespace

int main(int count, char** arguments) {
    try {
        const double peak = hw::bench::fma_peak(hw::threads());
        std::printf("%s, %d threads, fma peak %.1f GFLOP/s, f32\n", hw::active_isa().c_str(), hw::threads(),
                    peak / 1e9);
        std::printf("%-18s %5s %7s %10s %10s %11s\n", "model", "layer", "tokens", "time ms", "limit ms",
                    "of peak");
        for (int i = 1; i < count; ++i) {
            for (const std::int64_t layer : hw::stored_layers(arguments[i])) measure(arguments[i], layer, peak);
        }
    } catch (const hw::Error& error) {
        std::fprintf(stderr, "layer_bench: %s\n", error.what());
        return 1;
    }
    return 0;
}
