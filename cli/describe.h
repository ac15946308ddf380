// A layer's configuration in words and as JSON: only what the layer has.
#pragma once

#include <string>

#include <headwise/mha_config.h>

#include "cli/json.h"

namespace headwise::cli {

// "E 576, 9 query heads, 3 key/value heads, D 64, causal, rope theta 100000"
std::string describe(const MhaConfig& config);
Json config_json(const MhaConfig& config);

}  // namespace headwise::cli
