// Keys of config.json that no family's attention depends on.
#pragma once

#include <string_view>

namespace headwise {

// In any config.json: bookkeeping, tokens, text generation, embeddings, feed-forward stages, training.
extern const std::string_view kHarmlessAnywhere;

// Beside the section that describes the text model of a model that also sees or hears.
extern const std::string_view kHarmlessBesideText;

}  // namespace headwise
