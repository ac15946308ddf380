// The text of a config.json: what is accepted describes a layer whose sizes fit each other.
#include <cmath>

#include <headwise/weights.h>

#include "target.h"
#include "weights/plan.h"

using namespace headwise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::accepts([&] {
        const FileLimits limits;
        const Json root = parse_json_tree(fuzz::as_text(data, size), limits.json_depth, "config.json");
        const LayerPlan plan = plan_layer(root, "config.json", {});
        const MhaConfig& c = plan.config;
        fuzz::require(c.embed_dim > 0 && c.heads > 0 && c.kv_heads > 0 && c.head_dim > 0 && plan.layers > 0);
        fuzz::require(c.heads % c.kv_heads == 0);
        fuzz::require(!c.rope || (c.head_dim % 2 == 0 && std::isfinite(c.rope->theta) && c.rope->theta > 0));
    });
    return 0;
}
