// Stages of a latent layer (DeepSeek's MLA): k and v of all heads out of one latent, in two forms of the same result.
#pragma once

#include "mha/flow.h"

namespace headwise {

// Which forms a call needs. Only where a cache holds sequences of different lengths, both.
struct LatentForms {
    bool naive = false, absorbed = false;
};
LatentForms latent_forms(const MhaConfig& config, const Call& call);
bool latent_absorbed(const MhaConfig& config, const Call& call, std::int64_t b);

// By the number of multiply-adds for T rows of one sequence that attend to S keys; so it does not depend on the batch.
bool prefers_absorbed(const MhaConfig& config, std::int64_t T, std::int64_t S);

// q out of its normalised latent; norm of the latent of k and v. Rotation comes after.
void finish_latents(const Block& block, const Flow& flow, const Execution& execution);

// Naive: k and v of all heads out of latents [B,N,1,kv_rank + rope_dim] into rows [B,N,H*D + H*Dv].
void expand_latents(const Block& block, const ConstTensorView& latents, const TensorView& rows,
                    const Execution& execution);

// Absorbed: <q, W k> = <W^T q, k>, so q goes into the latent space, and outputs come back through the v rows.
void absorb_queries(const Block& block, const Flow& flow, const Execution& execution);
void expand_outputs(const Block& block, const Flow& flow, const Execution& execution);

}  // namespace headwise
