// `*.safetensors.index.json`: which shard holds which tensor.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <headwise/weights.h>

namespace headwise {

using WeightMap = std::map<std::string, std::string>;  // tensor -> file name of its shard

// Every shard name is a plain file name that ends in .safetensors: an index cannot lead out of its own directory.
// Throws Error bad_data, beginning with `where`.
WeightMap parse_shard_index(std::string_view json, const FileLimits& limits, const std::string& where);

}  // namespace headwise
