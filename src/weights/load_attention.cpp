#include <headwise/weights.h>

namespace headwise {

MultiHeadAttention load_attention(const std::string& directory, const LayerOptions& options) {
    const LayerWeights layer = load_layer(directory, options);
    return MultiHeadAttention(layer.config, layer.weights());
}

}  // namespace headwise
