// Rotary settings of a config.json, in both spellings.
#pragma once

#include <headwise/mha.h>

#include "weights/config.h"

namespace headwise {

// transformers 5: rope_parameters {rope_type, rope_theta, ...}; before: rope_theta beside rope_scaling {type or
// rope_type, ...}. Throws Error unsupported for any scaling and for partial rotation, bad_data for contradictions.
Rope read_rope(Config& config);

}  // namespace headwise
