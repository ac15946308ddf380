#include "mha/latent.h"

#include <cstring>

#include "core/dtype.h"
#include "core/parallel.h"
#include "mha/cached.h"
#include "mha/rows.h"
#include "mha/stages.h"
#include "mha/widths.h"

namespace headwise {

bool prefers_absorbed(const MhaConfig& c, std::int64_t T, std::int64_t S) {
    if (c.latent->form != Latent::Form::automatic) return c.latent->form == Latent::Form::absorbed;
    const double rank = static_cast<double>(c.latent->kv_rank), rope = static_cast<double>(c.latent->rope_dim);
    const double up = static_cast<double>(nope_width(c) + c.value_dim);  // of a head, out of the latent
    const double rows = static_cast<double>(T), keys = static_cast<double>(S);
    const double naive = keys * rank * up + rows * keys * (up + rope);
    const double absorbed = rows * rank * up + rows * keys * (2 * rank + rope);
    return absorbed < naive;
}

// The lengths of a call are those before its append. A ring may have lost keys, and keeps its latents as they are.
bool latent_absorbed(const MhaConfig& c, const Call& call, std::int64_t b) {
    const KvCache* cache = call.options.cache;
    if (cache == nullptr) return prefers_absorbed(c, call.T, call.N);
    if (cache->config().kind == CacheKind::ring) return true;
    return prefers_absorbed(c, call.appends() ? call.count(b) : call.T,
                            cache->length(b) + (call.appends() ? call.count(b) : 0));
}

LatentForms latent_forms(const MhaConfig& c, const Call& call) {
    LatentForms forms;
    for (std::int64_t b = 0; b < call.B; ++b) {
        const bool absorbed = latent_absorbed(c, call, b);
        forms.absorbed = forms.absorbed || absorbed;
        forms.naive = forms.naive || !absorbed;
    }
    return forms;
}

void finish_latents(const Block& block, const Flow& flow, const Execution& execution) {
    const MhaConfig& c = block.config;
    if (block.latent->q_up) {
        normalize_heads(block, flow.q_latent, *block.latent->q_norm, execution);
        block.latent->q_up->run(rows_of(ConstTensorView(join_heads(flow.q_latent))), out_rows_of(flow.q_up_rows),
                                execution);
    }
    if (!flow.latent.empty())
        normalize_heads(block, flow.latent.slice(3, 0, c.latent->kv_rank), *block.latent->kv_norm, execution);
}

void expand_latents(const Block& block, const ConstTensorView& latents, const TensorView& rows,
                    const Execution& execution) {
    const MhaConfig& c = block.config;
    const std::int64_t rank = c.latent->kv_rank, rope = c.latent->rope_dim, nope = nope_width(c);
    block.latent->kv_up->run(rows_of(join_heads(latents.slice(3, 0, rank))), out_rows_of(rows), execution);
    if (rope == 0) return;
    // The shared key goes into the gap of every head's k.
    const std::int64_t tokens = latents.size(1);
    parallel_for(execution, latents.size(0) * tokens, [&](std::int64_t at) {
        const std::int64_t b = at / tokens, t = at % tokens;
        const std::int64_t from = b * latents.stride(0) + t * latents.stride(1) + rank;
        const std::int64_t to = b * rows.stride(0) + t * rows.stride(1) + nope;
        for (std::int64_t h = 0; h < c.heads; ++h)
            copy_elements(element(rows, to + h * c.head_dim), rows.dtype, element(latents, from), latents.dtype,
                          rope);
    });
}

// One task a head: each has a matrix of its own, too small to share out among threads.
void absorb_queries(const Block& block, const Flow& flow, const Execution& execution) {
    const MhaConfig& c = block.config;
    const std::int64_t rank = c.latent->kv_rank, rope = c.latent->rope_dim, nope = nope_width(c);
    const TensorView &q = flow.q, &to = flow.absorbed_q;
    parallel_for(execution, c.heads, [&](std::int64_t h) {
        const ConstTensorView own = head_rows(ConstTensorView(q), h, 0, nope);
        block.latent->absorb[static_cast<std::size_t>(h)].run(rows_of(own), out_rows_of(head_rows(to, h, 0, rank)),
                                                              {.threads = 1});
        for (std::int64_t at = 0; rope > 0 && at < q.size(0) * q.size(1); ++at) {
            const std::int64_t b = at / q.size(1), t = at % q.size(1);
            const std::int64_t from = b * q.stride(0) + t * q.stride(1) + h * q.stride(2) + nope;
            const std::int64_t there = b * to.stride(0) + t * to.stride(1) + h * to.stride(2) + rank;
            copy_elements(element(to, there), to.dtype, element(ConstTensorView(q), from), q.dtype, rope);
        }
    });
}

void expand_outputs(const Block& block, const Flow& flow, const Execution& execution) {
    const MhaConfig& c = block.config;
    parallel_for(execution, c.heads, [&](std::int64_t h) {
        const ConstTensorView own = head_rows(ConstTensorView(flow.absorbed_out), h, 0, c.latent->kv_rank);
        block.latent->kv_up->run(rows_of(own), out_rows_of(head_rows(flow.all_heads, h, 0, c.value_dim)),
                                 {.threads = 1}, static_cast<int>(c.heads + h), 1);
    });
}

}  // namespace headwise
