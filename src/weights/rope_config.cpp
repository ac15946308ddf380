#include "weights/rope_config.h"

#include <array>
#include <optional>
#include <string_view>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {
namespace {

// Without scaling the trained length is of no consequence.
constexpr std::array<std::string_view, 1> kHarmless = {"original_max_position_embeddings"};

void refuse_scaling(Config& settings) {
    for (const char* key : {"rope_type", "type"}) {
        const std::string type = settings.string(key).value_or("default");
        if (type != "default") {
            fail(ErrorCode::unsupported, settings.where(), ": rope scaling of type ", quote(type),
                 " is not supported; supported: 'default'");
        }
    }
}

void refuse_partial(Config& settings) {
    if (const double factor = settings.number("partial_rotary_factor").value_or(1.0); factor != 1.0) {
        fail(ErrorCode::unsupported, settings.where(), ": partial_rotary_factor ", factor,
             " is not supported; headwise rotates whole heads");
    }
}

}  // namespace

Rope read_rope(Config& config) {
    std::optional<double> theta = config.number("rope_theta");
    refuse_partial(config);
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        auto settings = config.object(key);
        if (!settings) continue;
        refuse_scaling(*settings);
        refuse_partial(*settings);
        const auto nested = settings->number("rope_theta");
        if (nested && theta && *nested != *theta) {
            fail(ErrorCode::bad_data, settings->where(), ": rope_theta is ", *nested, " here and ", *theta,
                 " in another place of the file");
        }
        if (nested) theta = nested;
        settings->refuse_unknown(kHarmless);
    }
    const Rope rope{.theta = theta.value_or(Rope{}.theta)};
    if (!(rope.theta > 0))
        fail(ErrorCode::bad_data, config.where(), ": rope_theta is ", rope.theta, ", expected > 0");
    return rope;
}

}  // namespace headwise
