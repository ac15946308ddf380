// The stages of one run, in the order of the flow. All work on the views of a Flow and trust their shapes.
#pragma once

#include "attend/attend.h"
#include "mha/flow.h"

namespace headwise {

// Positions: offsets, the rotation's positions and the temperatures of the rows, before anything is computed.
void fill_positions(const Block& block, const Call& call, const Flow& flow);

// 1: rows of q (or of what it is made from), gate, k (or latent), v.
void project(const Block& block, const Flow& flow, const Execution& execution);

// 2: q out of its latent or its experts, clip, norm, rotation.
void prepare_heads(const Block& block, const Call& call, const Flow& flow);

// 3: what attend() gets for the layer, without keys; then attention into flow.all_heads.
AttendInputs attend_inputs(const Block& block, const Call& call, const Flow& flow);
void check_attention(const Block& block, const Call& call, const Flow& flow);
void attend_heads(const Block& block, const Call& call, const Flow& flow);
void attend_latent(const Block& block, const Call& call, const Flow& flow, const AttendInputs& inputs,
                   const AttendOutputs& outputs);
void write_scores(const Block& block, const Call& call, const Flow& flow, AttendInputs inputs);

// The extra key joins what attention over the real keys has left. Its scores: no mask, bias or position touches it.
void join_extra_key(const Block& block, const Call& call, const Flow& flow);
AttendInputs extra_key_inputs(const Block& block, const Call& call, const Flow& flow);

// 4 and 5: gate, difference of head pairs, norm of the merged row, W_O or the experts' way back.
void merge_and_project(const Block& block, const Flow& flow, const Execution& execution);

// A norm over heads [B,T,N,D] in place.
void normalize_heads(const Block& block, const TensorView& heads, const Normalization& norm,
                     const Execution& execution);

// Routing: which experts a token of flow.router has. Slot j of a token is its expert of rank j.
void route_queries(const Block& block, const Flow& flow, const Execution& execution);
void route_outputs(const Block& block, const Flow& flow, const Execution& execution);

// One run.
Flow run_block(const Block& block, const ConstTensorView& x, const TensorView& y, const ForwardOptions& options);

}  // namespace headwise
