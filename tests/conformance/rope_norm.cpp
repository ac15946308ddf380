// Suite rope_norm: what the rotation inside the block does today is half-split over the whole head width with plain
// frequencies; tests of anything else are skipped by its name.
#include <algorithm>
#include <cmath>

#include "conformance/judge.h"
#include "core/dtype.h"
#include "heads/rope.h"
#include "kernels/dispatch.h"

namespace headwise::conformance {

namespace {

void require_supported(const Test& test) {
    const Value& attributes = test.attributes();
    require_known(attributes,
                  {"op", "B", "T", "H", "D", "dtype", "rope", "norm", "seq_len", "checked_by", "judge"},
                  "attribute");
    if (!attributes.at("norm").is_null()) throw Unsupported{"norm " + attributes.at("norm").at("kind").as_text()};
    const Value& rope = attributes.at("rope");
    if (rope.is_null()) throw Unsupported{"a test with neither rope nor norm"};
    require_known(rope, {"style", "rotary_dim", "rotary_offset", "theta", "scaling", "attention_factor"}, "rope");
    const std::string& style = rope.at("style").as_text();
    const std::string& scaling = rope.at("scaling").at("type").as_text();
    if (style != "half") throw Unsupported{"rope style " + style};
    if (rope.at("rotary_dim").as_integer() != attributes.at("D").as_integer()) throw Unsupported{"rotary_dim < D"};
    if (rope.at("rotary_offset").as_integer() != 0) throw Unsupported{"rotary_offset"};
    if (scaling != "none") throw Unsupported{"rope scaling " + scaling};
    if (rope.at("attention_factor").as_number() != 1) throw Unsupported{"attention_factor"};
}

// README: u(sqrt D + 8 + (3 + ln theta)|angle|) (|a| + |b|) + u_t |y|, for f16 also 2^-25. Our tables come from f64
// angles, so where angles are large (tag large_angle) |angle| counts as 1.
std::vector<double> bounds_of(const ConstTensorView& x, const ConstTensorView& positions,
                              const ConstTensorView& expected, double theta, bool large_angle) {
    const std::int64_t T = x.size(1), H = x.size(2), D = x.size(3);
    const double ut = x.dtype == DType::bf16 ? 0x1p-8 : x.dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
    std::vector<double> bounds(static_cast<std::size_t>(x.count()));
    for (std::int64_t n = 0; n < x.count(); ++n) {
        const std::int64_t i = n % D % (D / 2), row = n - n % D, token = n / (D * H);
        const double position =
            static_cast<double>(load_i64(positions.data, positions.dtype, token / T * T + token % T));
        const double angle =
            std::abs(position) * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(D));
        const double size =
            std::abs(load_f64(x.data, x.dtype, row + i)) + std::abs(load_f64(x.data, x.dtype, row + i + D / 2));
        const double factor = std::sqrt(static_cast<double>(D)) + 8 +
                              (3 + std::log(theta)) * (large_angle ? std::min(angle, 1.0) : angle);
        bounds[static_cast<std::size_t>(n)] = 0x1p-24 * factor * size +
                                              ut * std::abs(load_f64(expected.data, expected.dtype, n)) +
                                              (x.dtype == DType::f16 ? 0x1p-25 : 0);
    }
    return bounds;
}

bool has_tag(const Test& test, const std::string& tag) {
    const Value* tags = test.line.find("tags");
    return tags && std::any_of(tags->items.begin(), tags->items.end(),
                               [&](const Value& item) { return item.as_text() == tag; });
}

}  // namespace

Outcome run_rope_norm(const Test& test, const Execution& execution) {
    require_supported(test);
    TensorSet tensors(test);
    const ConstTensorView x = tensors.input("x"), positions = tensors.input("position_ids");
    const ConstTensorView expected = tensors.expected("y");
    const double theta = test.attributes().at("rope").at("theta").as_number();
    const std::vector<double> bounds = bounds_of(x, positions, expected, theta, has_tag(test, "large_angle"));
    Tensor y = convert(x, x.dtype);
    rotate(kernels(), y, *RopeTable::shared(theta, x.size(3)), positions, execution);
    return conclude(test, {judge("y", y, expected, bounds)});
}

}  // namespace headwise::conformance
