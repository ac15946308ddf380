// What a file calls the tensors of a layer: [prefix] [base] path, where the base may be missing and models that also see
// or hear put a prefix before it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <headwise/weights.h>

#include "weights/plan.h"

namespace headwise {

struct LayerPlace {
    std::string base;    // what stands before the path in this file
    std::string module;  // base + path of the layer, with the '.' at its end
};

// Throws Error bad_data if the file has none of the layer's tensors, or has them under two spellings.
LayerPlace find_layer(const LayerPlan& plan, const TensorFile& file, const std::string& directory);

// The layers whose weights are all there, in order.
std::vector<std::int64_t> complete_layers(const LayerPlan& plan, const std::vector<std::string>& sorted_names);

// Throws Error unsupported for a tensor under the module that is neither planned nor known to belong to other stages:
// it (a norm, a quantisation scale, a bias that config.json denies) would change the result.
void refuse_unknown_tensors(const LayerPlan& plan, const LayerPlace& place, const TensorFile& file,
                            const std::string& directory);

}  // namespace headwise
