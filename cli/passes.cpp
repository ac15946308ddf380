#include "cli/passes.h"

#include <algorithm>
#include <chrono>

namespace headwise::cli {

namespace {

class Stopwatch {
public:
    double ms() const {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Tokens [first, first + count) of [T] or [B,T].
ConstTensorView tokens_of(const ConstTensorView& view, std::int64_t first, std::int64_t count) {
    return view.empty() ? view : view.slice(view.rank - 1, first, count);
}

// How many of the tokens [first, first + count) each sequence has.
Tensor counts_of(const ConstTensorView& lengths, std::int64_t first, std::int64_t count) {
    Tensor counts(DType::i64, {lengths.size(0)});
    for (std::int64_t b = 0; b < counts.count(); ++b) {
        const std::int64_t length = static_cast<const std::int64_t*>(lengths.data)[b];
        counts.data<std::int64_t>()[b] = std::clamp<std::int64_t>(length - first, 0, count);
    }
    return counts;
}

// Tokens [first, first + count) behind what the cache holds.
void step(const MultiHeadAttention& block, const Passes& passes, const TensorView& y, KvCache& cache,
          std::int64_t first, std::int64_t count) {
    const bool cross = !passes.key.empty();
    ForwardOptions options;
    options.rope_positions = tokens_of(passes.positions, first, count);
    options.cache = &cache;
    Tensor counts;
    if (cross) {  // the first call fills the cache from the source of the keys
        if (first == 0) options.key = passes.key;
        if (first > 0) options.cache_use = CacheUse::read;
        if (!passes.lengths.empty()) options.mask.key_lengths = passes.lengths;
    } else if (!passes.lengths.empty()) {
        counts = counts_of(passes.lengths, first, count);
        options.counts = counts.view();
    }
    if (!passes.scores_to.empty()) {
        const std::int64_t keys = cross ? passes.key.size(1) : first + count;
        options.scores.kind = passes.scores;
        options.scores_to = passes.scores_to.slice(2, first, count).slice(3, 0, keys);
    }
    block.forward(passes.x.slice(1, first, count), y.slice(1, first, count), options);
}

void at_once(const MultiHeadAttention& block, const Passes& passes, const TensorView& y) {
    ForwardOptions options;
    options.key = passes.key;
    options.rope_positions = passes.positions;
    options.mask.key_lengths = passes.lengths;
    options.scores.kind = passes.scores;
    options.scores_to = passes.scores_to;
    block.forward(passes.x, y, options);
}

}  // namespace

std::int64_t keys_of(const Passes& passes) noexcept {
    return passes.key.empty() ? passes.x.size(1) : passes.key.size(1);
}

PassTimes run_passes(const MultiHeadAttention& block, const Passes& passes, const TensorView& y) {
    PassTimes times;
    const Stopwatch all;
    if (!passes.cache) {
        at_once(block, passes, y);
        times.all_ms = all.ms();
        return times;
    }
    KvCache cache = make_cache(block.config(), *passes.cache);
    times.cache_bytes = cache.bytes();
    const std::int64_t tokens = passes.x.size(1), prefill = tokens - passes.decode;
    const Stopwatch whole;  // the memory of the cache is not part of the time
    if (prefill > 0) step(block, passes, y, cache, 0, prefill);
    times.prefill_ms = whole.ms();
    for (std::int64_t t = prefill; t < tokens; ++t) {
        const Stopwatch one;
        step(block, passes, y, cache, t, 1);
        times.step_ms.push_back(one.ms());
    }
    times.all_ms = whole.ms();
    return times;
}

}  // namespace headwise::cli
