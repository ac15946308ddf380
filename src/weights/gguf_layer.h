// One attention layer of a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <headwise/weights.h>

namespace headwise {

// Whether `path` is a file (no directory) that is to be read as GGUF.
bool is_gguf_file(const std::string& path);

// load_layer and stored_layers of such a file; options.dtype has been checked.
LayerWeights load_gguf_layer(const std::string& path, const LayerOptions& options);
std::vector<std::int64_t> stored_gguf_layers(const std::string& path, const FileLimits& limits);

}  // namespace headwise
