// Rotary settings of a config.json, in both spellings.
#pragma once

#include "weights/config.h"
#include "weights/plan.h"

namespace headwise {

// transformers 5: rope_parameters {rope_type, rope_theta, ...}, or one such object for each type of layer; before:
// rope_theta beside rope_scaling {type or rope_type, ...}. Fills plan.config.rope where the layer rotates, and the scale
// of a latent layer, which depends on the scaling. The settings are checked even where the layer does not rotate.
void read_rope(Config& config, LayerPlan& plan);

}  // namespace headwise
