#include "mha/cached.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/dtype.h"
#include "core/storage.h"
#include "heads/kv_cache.h"
#include "mha/widths.h"

namespace headwise {
namespace {

// Rows of query tokens [first, first + count) of everything that has a query axis.
ConstTensorView query_rows(const ConstTensorView& view, int axis, std::int64_t first, std::int64_t count) {
    if (view.empty() || axis < 0 || view.size(axis) == 1) return view;
    return view.slice(axis, first, count);
}

// Rows of a ring that are not kept for ever, and how many keys before itself a row sees.
std::int64_t recent_rows(const KvCacheConfig& ring) { return ring.capacity - ring.keep_first; }
std::int64_t reach(const Mask& mask) {
    constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    const std::int64_t window = mask.window_left < 0 ? kAll : mask.window_left;
    return mask.chunk > 0 ? std::min(window, mask.chunk - 1) : window;
}

bool overflows(const Call& call) {
    const KvCache& cache = *call.options.cache;
    for (std::int64_t b = 0; b < call.B; ++b)
        if (call.count(b) > cache.config().capacity - cache.length(b)) return true;
    return false;
}

// How many of the new tokens from `done` on a ring can take before it overwrites keys that their first row still sees.
std::int64_t piece(const Call& call, std::int64_t done) {
    const KvCache& cache = *call.options.cache;
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < call.B; ++b)
        if (call.count(b) > done) longest = std::max(longest, cache.length(b));
    const std::int64_t room =
        std::max(cache.config().capacity - longest, recent_rows(cache.config()) - reach(call.mask));
    return std::min(call.N - done, room);
}

void check_room(const Call& call) {
    const KvCacheConfig& has = call.options.cache->config();
    for (std::int64_t b = 0; b < call.B; ++b) {
        const std::int64_t length = call.options.cache->length(b);
        if (call.count(b) <= has.capacity - length) continue;
        fail(ErrorCode::cache_full, "forward: sequence ", b, " of the cache holds ", length, " of ", has.capacity,
             " keys and has no room for ", call.count(b), " more; nothing was changed");
    }
}

// A ring takes what it has no room for piece by piece, so every row must be done with what later pieces overwrite.
void check_ring(const Call& call) {
    const KvCacheConfig& has = call.options.cache->config();
    check(call.self && call.options.positions.align == Positions::Align::bottom_right,
          "forward: a ring that overwrites keys within the call takes self attention at its own positions only");
    check(call.mask.causal || call.mask.window_right == 0,
          "forward: a ring that overwrites keys within the call needs a causal mask");
    check(reach(call.mask) < recent_rows(has), "forward: rows of this layer see more keys than the ring's ",
          recent_rows(has), "; give the layer a window, or the ring a capacity of at least its window");
    check(call.mask.window_left < 0 || call.mask.keep_first <= has.keep_first,
          "forward: the mask keeps the first ", call.mask.keep_first, " keys, the ring only the first ",
          has.keep_first);
    check(
        call.N == 1 || (call.options.dropout.probability == 0 && call.options.scores_to.empty() &&
                        call.mask.blocks.counts.empty()),
        "forward: dropout, scores or block lists where a ring overwrites keys within the call; pass fewer tokens");
}

}  // namespace

KvCacheConfig cache_config(const MhaConfig& given, const KvCacheConfig& wish) {
    const MhaConfig c = resolve(given);
    KvCacheConfig config = wish;
    config.kv_heads = c.latent ? 1 : c.kv_heads;
    config.key_dim = c.latent ? latent_width(c) : c.head_dim;
    config.value_dim = c.latent ? c.latent->kv_rank : c.value_dim;
    config.value_in_key = c.latent.has_value();
    return config;
}

void check_cache(const MhaConfig& c, const Call& call) {
    const KvCacheConfig& has = call.options.cache->config();
    const KvCacheConfig wants = cache_config(c, has);
    check(has.batch == call.B, "forward: the cache holds ", has.batch, " sequences, x has ", call.B);
    check(has.kv_heads == wants.kv_heads && has.key_dim == wants.key_dim && has.value_dim == wants.value_dim &&
              has.value_in_key == wants.value_in_key,
          "forward: the cache has ", has.kv_heads, " heads of ", has.key_dim, " and ", has.value_dim,
          has.value_in_key ? " (values inside keys)" : "", ", the layer needs ", wants.kv_heads, " of ",
          wants.key_dim, " and ", wants.value_dim, wants.value_in_key ? " (values inside keys)" : "",
          "; make it with make_cache()");
    check(call.mask.documents.queries.empty(),
          "forward: packed documents with a cache, which keeps sequences apart");
    if (!call.appends()) return;
    check(!c.latent || c.latent->form != Latent::Form::naive || has.kind != CacheKind::ring,
          "forward: the naive latent form expands all keys, which a ring does not hold; choose another form or "
          "kind");
    if (has.kind != CacheKind::ring) return check_room(call);
    if (overflows(call)) check_ring(call);
}

std::int64_t keys_after(const Call& call) {
    const KvCache& cache = *call.options.cache;
    if (call.reads()) return cache.longest();
    std::int64_t longest = 0;
    for (std::int64_t b = 0; b < call.B; ++b) longest = std::max(longest, cache.length(b) + call.count(b));
    return longest;
}

std::int64_t cache_offset(const Call& call, std::int64_t b) {
    const std::int64_t length = call.options.cache->length(b);
    if (call.reads()) return length - call.T;
    return call.self ? length : length + call.count(b) - call.T;
}

namespace {

// Rows [done, done + n) of a call whose earlier tokens are appended.
void attend_piece(const Block& block, const Call& call, const AttendInputs& all, const AttendOutputs& outputs,
                  std::int64_t done, std::int64_t n) {
    AttendInputs in = all;
    in.q = all.q.slice(1, done, n);
    in.tau = query_rows(all.tau, 1, done, n);
    in.mask.keep = query_rows(all.mask.keep, all.mask.keep.rank - 2, done, n);
    in.mask.bias = query_rows(all.mask.bias, all.mask.bias.rank - 2, done, n);
    AttendOutputs out{.out = outputs.out.slice(1, done, n)};
    if (!outputs.lse.empty()) out.lse = outputs.lse.slice(2, done, n);
    attend(*block.kernels, in, out, call.options.execution);
}

// A ring that is empty holds nothing that the rows could miss: they attend to the new keys where they were projected.
bool starts_empty(const Block& block, const Call& call) {
    const CacheType type = call.options.cache->config().type;
    const DType dtype = block.config.dtype;
    const bool same = (type == CacheType::f32 && dtype == DType::f32) ||
                      (type == CacheType::bf16 && dtype == DType::bf16) ||
                      (type == CacheType::f16 && dtype == DType::f16);
    return same && call.options.cache->longest() == 0;
}

}  // namespace

void append_and_attend(const Block& block, const Call& call, AttendInputs inputs, const AttendOutputs& outputs,
                       const NewKeys& keys) {
    const Execution& execution = call.options.execution;
    KvCache::Impl& cache = call.options.cache->impl();
    const bool in_pieces = cache.config.kind == CacheKind::ring && call.N > 1 && overflows(call);
    if (!in_pieces || starts_empty(block, call)) {
        cache.append(*block.kernels, keys.k, keys.v, call.options.counts, execution);
        if (in_pieces) inputs.cache = nullptr, inputs.k = keys.k, inputs.v = keys.attended_v;
        return attend(*block.kernels, inputs, outputs, execution);
    }
    const Scratch memory(static_cast<std::size_t>(call.B) * 2 * sizeof(std::int64_t));
    auto* const counts = memory.data<std::int64_t>();
    std::int64_t* const offsets = counts + call.B;
    for (std::int64_t b = 0; b < call.B; ++b) offsets[b] = cache_offset(call, b);
    inputs.positions = Positions::at(ConstTensorView(offsets, DType::i64, {call.B}));
    for (std::int64_t done = 0, n = 0; done < call.N; done += n) {
        n = piece(call, done);
        for (std::int64_t b = 0; b < call.B; ++b) counts[b] = std::clamp<std::int64_t>(call.count(b) - done, 0, n);
        const ConstTensorView v = keys.v.empty() ? keys.v : keys.v.slice(1, done, n);
        cache.append(*block.kernels, keys.k.slice(1, done, n), v, ConstTensorView(counts, DType::i64, {call.B}),
                     execution);
        attend_piece(block, call, inputs, outputs, done, n);
        for (std::int64_t b = 0; b < call.B; ++b) offsets[b] += n;
    }
}

}  // namespace headwise
