// MhaConfig: every shape rule of a layer, checked once.
#include <cmath>

#include <headwise/mha.h>

#include "core/check.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;  // products of two sizes stay inside 64 bits

void check_size(std::int64_t value, const char* name, bool zero_allowed) {
    check(value >= 0 && value <= kMaxSize, "MhaConfig: ", name, " = ", value, " is outside [0, 2^31]");
    check(zero_allowed || value > 0, "MhaConfig: ", name, " must be positive; give it, or what it follows from");
}

}  // namespace

MhaConfig resolve(const MhaConfig& given) {
    MhaConfig config = given;
    check_size(config.embed_dim, "embed_dim", true);
    check_size(config.heads, "heads", false);
    check_size(config.kv_heads, "kv_heads", true);
    if (config.kv_heads == 0) config.kv_heads = config.heads;
    check(config.heads % config.kv_heads == 0, "MhaConfig: heads = ", config.heads,
          " is not a multiple of kv_heads = ", config.kv_heads,
          "; every kv head serves the same number of query heads");

    check_size(config.head_dim, "head_dim", true);
    if (config.head_dim == 0) {
        check(config.embed_dim % config.heads == 0, "MhaConfig: embed_dim = ", config.embed_dim,
              " is not a multiple of heads = ", config.heads, "; give head_dim where they are independent");
        config.head_dim = config.embed_dim / config.heads;
    }
    check_size(config.head_dim, "head_dim", false);
    check_size(config.value_dim, "value_dim", true);
    if (config.value_dim == 0) config.value_dim = config.head_dim;
    check_size(config.key_embed_dim, "key_embed_dim", true);
    if (config.key_embed_dim == 0) config.key_embed_dim = config.embed_dim;
    check_size(config.value_embed_dim, "value_embed_dim", true);
    if (config.value_embed_dim == 0) config.value_embed_dim = config.embed_dim;
    check_size(config.out_dim, "out_dim", true);
    if (config.out_dim == 0) config.out_dim = config.embed_dim;

    for (const std::int64_t width : {config.head_dim, config.value_dim}) {
        check(config.heads * width <= kMaxSize, "MhaConfig: ", config.heads, " heads of width ", width,
              " make a row of more than 2^31 numbers");
    }

    check(!config.scale || std::isfinite(*config.scale), "MhaConfig: scale = ", config.scale.value_or(0),
          " is not a finite number; leave it out for 1/sqrt(head_dim)");
    if (config.rope) {
        check(config.head_dim % 2 == 0, "MhaConfig: rope turns pairs, so head_dim = ", config.head_dim,
              " must be even");
        check(std::isfinite(config.rope->theta) && config.rope->theta > 0,
              "MhaConfig: rope theta = ", config.rope->theta, " must be a positive number");
    }
    check(config.mask.window_left >= -1 && config.mask.window_right >= -1, "MhaConfig: window (",
          config.mask.window_left, ", ", config.mask.window_right, ") must be >= 0, or -1 for open");
    check(config.mask.key_lengths.empty() && config.mask.keep.empty() && config.mask.bias.empty(),
          "MhaConfig: tensors in the mask belong to a call; pass them in ForwardOptions::mask");
    check(has_storage(config.dtype), "MhaConfig: dtype ", config.dtype, " is not one of f32, bf16, f16");
    return config;
}

}  // namespace headwise
