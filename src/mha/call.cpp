// Every rule about what forward() accepts.
#include "mha/call.h"

#include <algorithm>

#include "core/check.h"
#include "core/dtype.h"
#include "heads/check.h"
#include "kernels/storage_of.h"
#include "mha/cached.h"

namespace headwise {

std::int64_t Call::count(std::int64_t b) const noexcept {
    const ConstTensorView& counts = options.counts;
    return counts.empty() ? N : integer_at(counts, b);
}

void check_rows(const ConstTensorView& view, const char* name, std::int64_t width) {
    check((view.rank == 2 || view.rank == 3) && has_storage(view.dtype), "forward: ", name, " is ", view,
          ", expected f32, bf16 or f16 [B, tokens, ", width, "]");
    check(view.size(view.rank - 1) == width, "forward: ", name, " has width ", view.size(view.rank - 1),
          ", the layer expects ", width);
    check(width <= 1 || view.stride(view.rank - 1) == 1, "forward: the innermost stride of ", name, " is ",
          view.stride(view.rank - 1), ", expected 1; copy it with convert() first");
}

namespace {

void check_integers(const ConstTensorView& view, const char* name) {
    check(view.dtype == DType::i32 || view.dtype == DType::i64, "forward: ", name, " are ", view,
          ", expected i32 or i64");
}

void check_rope_options(const Block& block, const Call& call) {
    const ForwardOptions& options = call.options;
    check_rope_positions(options.rope_positions, call.x, "forward: rope_positions");
    if (options.rope_tables.cos.empty() && options.rope_tables.sin.empty()) return;
    check(block.rotation.has_value(), "forward: rope_tables for a layer without rope");
    check_rope_tables(options.rope_tables, call.x, block.rotation->layout(), options.rope_positions,
                      "forward: rope_tables");
}

void check_key_source(const MhaConfig& c, const ForwardOptions& options, Call& call, const ConstTensorView& x) {
    call.self = options.key.empty() && options.value.empty();
    call.one_kv = options.value.empty();
    check(!options.key.empty() || options.value.empty(), "forward: a value source needs a key source");
    if (call.reads()) {
        check(call.self, "forward: a key source with CacheUse::read, which projects no keys");
        call.self = false;
        return;
    }
    check(!call.self || (c.key_embed_dim == c.embed_dim && c.value_embed_dim == c.embed_dim),
          "forward: this layer projects keys from width ", c.key_embed_dim, " and values from width ",
          c.value_embed_dim, ", x has ", c.embed_dim, "; pass ForwardOptions::key (and value)");
    check(call.self || !c.latent, "forward: a key source for a latent layer, which projects its latent from x");
    check(call.self || !c.rope,
          "forward: a layer with rope turns q and k by the positions of x; a separate key source has none");
    const ConstTensorView& key = call.self ? x : options.key;
    const ConstTensorView& value = call.one_kv ? key : options.value;
    check_rows(key, "key", c.key_embed_dim);
    check_rows(value, "value", c.value_embed_dim);
    call.key = with_batch(key);
    call.value = with_batch(value);
    check(call.key.size(0) == call.B && call.value.size(0) == call.B, "forward: batch sizes differ: x ", call.B,
          ", key ", call.key.size(0), ", value ", call.value.size(0));
    check(call.key.size(1) == call.value.size(1), "forward: key has ", call.key.size(1), " tokens, value ",
          call.value.size(1));
    call.N = call.key.size(1);
}

void check_counts(const Call& call) {
    const ConstTensorView& counts = call.options.counts;
    if (counts.empty()) return;
    check(!call.reads(), "forward: counts with CacheUse::read, which appends nothing");
    check_integers(counts, "counts");
    check(counts.rank == 1 && counts.size(0) == call.B, "forward: counts are ", counts, ", expected [", call.B,
          "]");
    for (std::int64_t b = 0; b < call.B; ++b) {
        check(call.count(b) >= 0 && call.count(b) <= call.N, "forward: counts[", b, "] is ", call.count(b),
              ", expected a count between 0 and the ", call.N, " tokens of the call");
    }
}

void check_output(const MhaConfig& c, const ConstTensorView& x, const TensorView& y) {
    check(y.rank == x.rank, "forward: y is ", y, ", expected the rank of x, ", x.rank);
    check_rows(y, "y", c.out_dim);
    const TensorView rows = with_batch(y);
    const ConstTensorView given = with_batch(x);
    check(rows.size(0) == given.size(0) && rows.size(1) == given.size(1), "forward: y is ", y, ", expected [",
          given.size(0), ", ", given.size(1), ", ", c.out_dim, "]");
}

void check_range(std::int64_t first, std::int64_t count, std::int64_t size, const char* what) {
    check(first >= 0 && first <= size && count >= -1 && count <= size - first, "forward: scores of ", what, " ",
          first, " on, ", count, " of them (-1: all), of ", size);
}

// The extra key and the zero key are columns of their own behind the S keys.
void check_score_request(const Block& block, const Call& call) {
    const TensorView& to = call.options.scores_to;
    if (to.empty()) return;
    const ScoreRequest& request = call.options.scores;
    check(request.kind <= ScoreKind::weights, "forward: scores.kind is none of raw, capped, masked and weights");
    check(call.options.cache == nullptr || !block.latent || !block.latent->absorb.empty(),
          "forward: scores of a latent layer of the naive form with a cache, which holds latents; choose another "
          "form");
    check_range(request.first_head, request.heads, block.config.heads, "heads");
    check_range(request.first_row, request.rows, call.T, "rows");
    const std::int64_t heads = request.heads < 0 ? block.config.heads - request.first_head : request.heads;
    const std::int64_t rows = request.rows < 0 ? call.T - request.first_row : request.rows;
    const std::int64_t keys = call.S + block.appended_keys();
    check(to.rank == 4 && to.dtype == DType::f32 && to.size(0) == call.B && to.size(1) == heads &&
              to.size(2) == rows && to.size(3) == keys,
          "forward: scores_to is ", to, ", expected f32 [", call.B, ", ", heads, ", ", rows, ", ", keys, "]");
}

}  // namespace

Call check_call(const Block& block, const ConstTensorView& x, const TensorView& y, const ForwardOptions& options) {
    const MhaConfig& c = block.config;
    Call call{.options = options};
    check_rows(x, "x", c.embed_dim);
    call.x = with_batch(x);
    call.B = call.x.size(0), call.T = call.x.size(1);
    check_key_source(c, options, call, x);
    check_counts(call);
    check_rope_options(block, call);
    check_output(c, x, y);
    call.mask = c.mask & options.mask;
    call.S = call.N;
    if (options.cache != nullptr) {
        check_cache(c, call);
        call.S = keys_after(call);
    } else if (!options.counts.empty()) {
        call.mask = call.mask & key_lengths(options.counts);
    }
    check(block.extra_key.empty() || options.dropout.probability == 0,
          "forward: dropout in a layer with an extra key, whose weight has no counter of its own");
    check_score_request(block, call);
    return call;
}

}  // namespace headwise
