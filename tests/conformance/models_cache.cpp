// The pieces of `split` through a cache of every kind: they must give the rows of the whole sequence.
#include <array>
#include <cstring>
#include <string>

#include "conformance/models.h"
#include "core/dtype.h"

namespace headwise::conformance {

namespace {

constexpr std::int64_t kPageSize = 3;  // pieces and windows cross its edges

struct Kind {
    const char* name;
    CacheKind kind;
    std::int64_t capacity;
};

// The keys that a layer with a window or chunks needs at one time; 0: all.
std::int64_t keys_in_sight(const Mask& mask) {
    if (mask.window_left >= 0) return mask.window_left + 1;
    return mask.chunk;
}

std::vector<Kind> kinds_for(const MhaConfig& config, std::int64_t keys) {
    std::vector<Kind> kinds = {{"contiguous", CacheKind::contiguous, keys}, {"paged", CacheKind::paged, keys}};
    const std::int64_t enough = keys_in_sight(config.mask);
    if (enough > 0 && enough < keys) kinds.push_back({"ring", CacheKind::ring, enough});
    return kinds;
}

ConstTensorView rows(const ConstTensorView& view, std::int64_t begin, std::int64_t count) {
    return view.empty() ? view : view.slice(1, begin, count);
}

// Self attention appends the keys of each piece; cross attention appends those of the other side once, then reads.
void run_pieces(const ModelPoint& point, KvCache& cache, const TensorView& y) {
    const bool cross = !point.kv.empty();
    std::int64_t begin = 0;
    for (const std::int64_t count : point.split) {
        ForwardOptions options = point.options;
        options.cache = &cache;
        options.rope_positions = rows(options.rope_positions, begin, count);
        if (cross) {
            options.key = begin == 0 ? point.kv : ConstTensorView{};
            options.cache_use = begin == 0 ? CacheUse::append : CacheUse::read;
        } else if (!options.mask.keep.empty()) {
            options.mask.keep = options.mask.keep.slice(3, 0, begin + count);
        }
        point.block->forward(point.x.slice(1, begin, count), y.slice(1, begin, count), options);
        begin += count;
    }
}

}  // namespace

void judge_split(const ModelPoint& point, std::vector<OutputResult>& results) {
    const MhaConfig& config = point.block->config();
    const std::int64_t B = point.x.size(0), T = point.x.size(1);
    const std::int64_t keys = point.kv.empty() ? T : point.kv.size(1);
    for (const Kind& kind : kinds_for(config, keys)) {
        KvCache cache =
            make_cache(config, {.batch = B, .capacity = kind.capacity, .kind = kind.kind, .page_size = kPageSize});
        Tensor y = make_output(DType::f32, {B, T, point.expected.size(2)});
        run_pieces(point, cache, y);
        results.push_back(
            judge(std::string("y through a ") + kind.name + " cache", y, point.expected, point.bounds));
    }
}

}  // namespace headwise::conformance
