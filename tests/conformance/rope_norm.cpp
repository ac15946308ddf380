// Suite rope_norm: normalize() and rotate() in the order of the test, judged by the bound of the suite's README, which a
// float64 evaluation of the same chain computes.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <headwise/heads.h>

#include "conformance/judge.h"
#include "core/check.h"
#include "core/dtype.h"

namespace headwise::conformance {

namespace {

std::optional<double> optional_number(const Value& object, const char* name) {
    const Value* value = object.find(name);
    return value == nullptr || value->is_null() ? std::nullopt : std::optional(value->as_number());
}

std::vector<double> numbers_of(const ConstTensorView& view) {
    const Tensor wide = convert(view, DType::f64);
    return {wide.data<double>(), wide.data<double>() + wide.count()};
}

std::vector<double> numbers_of(const Value& list) {
    std::vector<double> numbers;
    for (const Value& item : list.items) numbers.push_back(item.as_number());
    return numbers;
}

RopeScaling read_scaling(const Value& from) {
    using Kind = RopeScaling::Kind;
    const std::string& type = from.at("type").as_text();
    RopeScaling to{.attention_factor = optional_number(from, "given_attention_factor")};
    if (type == "none" || type == "table" || type == "cos_sin_table") return to;
    to.factor = from.at("factor").as_number();
    if (type == "dynamic") {
        to.kind = Kind::dynamic;
        to.max_position = from.at("max_position").as_integer();
        return to;
    }
    to.kind = type == "linear"   ? Kind::linear
              : type == "llama3" ? Kind::llama3
              : type == "yarn"   ? Kind::yarn
                                 : Kind::longrope;
    if (type == "linear") return to;
    to.original_max_position = from.at("original_max_position").as_integer();
    if (type == "llama3") {
        to.low_freq_factor = from.at("low_freq_factor").as_number();
        to.high_freq_factor = from.at("high_freq_factor").as_number();
    } else if (type == "yarn") {
        to.beta_fast = from.at("beta_fast").as_number();
        to.beta_slow = from.at("beta_slow").as_number();
        to.truncate = from.at("truncate").as_bool();
        to.mscale = optional_number(from, "mscale");
        to.mscale_all_dim = optional_number(from, "mscale_all_dim");
    } else if (type == "longrope") {
        to.short_factor = numbers_of(from.at("short_factor"));
        to.long_factor = numbers_of(from.at("long_factor"));
    } else {
        throw Unsupported{"rope scaling " + type};
    }
    return to;
}

struct Chain {
    std::optional<Rope> rope{};
    RopeTables tables{};
    Tensor cos{}, sin{};  // behind `tables`
    double multiplier = 1;
    std::optional<HeadNorm> norm{};
    ConstTensorView positions{}, weight{};
    std::int64_t longest = 0;
};

Rope read_rope(const Value& from) {
    require_known(from, {"style", "rotary_dim", "rotary_offset", "theta", "scaling", "attention_factor"}, "rope");
    const std::string& style = from.at("style").as_text();
    if (style != "half" && style != "interleaved") throw Unsupported{"rope style " + style};
    Rope rope{.theta = from.at("theta").as_number(),
              .pairs = style == "half" ? Rope::Pairs::half_split : Rope::Pairs::interleaved,
              .width = from.at("rotary_dim").as_integer(),
              .offset = from.at("rotary_offset").as_integer(),
              .scaling = read_scaling(from.at("scaling"))};
    // Already resolved in the manifest: given to us only where no rule prescribes it.
    const double multiplier = from.at("attention_factor").as_number();
    const RopeScaling::Kind kind = rope.scaling.kind;
    if (kind != RopeScaling::Kind::yarn && kind != RopeScaling::Kind::longrope && multiplier != 1) {
        rope.scaling.attention_factor = multiplier;
    }
    return rope;
}

HeadNorm read_norm(const Value& from) {
    require_known(from, {"kind", "eps", "weight", "extent", "order"}, "norm");
    const std::string &kind = from.at("kind").as_text(), &weight = from.at("weight").as_text(),
                      &extent = from.at("extent").as_text(), &order = from.at("order").as_text();
    if (kind != "rms" && kind != "layernorm") throw Unsupported{"norm " + kind};
    if (weight != "none" && weight != "w" && weight != "1+w") throw Unsupported{"norm weight " + weight};
    if (extent != "head" && extent != "row") throw Unsupported{"norm extent " + extent};
    if (order != "before_rope" && order != "after_rope") throw Unsupported{"norm order " + order};
    using Weight = HeadNorm::Weight;
    return {.kind = kind == "rms" ? HeadNorm::Kind::rms : HeadNorm::Kind::layer_norm,
            .extent = extent == "head" ? HeadNorm::Extent::head : HeadNorm::Extent::row,
            .weight = weight == "none" ? Weight::none
                      : weight == "w"  ? Weight::w
                                       : Weight::one_plus_w,
            .eps = from.at("eps").as_number(),
            .after_rope = order == "after_rope"};
}

// A table of the test as f32, times the multiplier.
Tensor scaled(const ConstTensorView& table, double by) {
    Tensor copy = convert(table, DType::f32);
    for (std::int64_t i = 0; i < copy.count(); ++i) {
        copy.data<float>()[i] = static_cast<float>(by * load_f64(copy.view().data, DType::f32, i));
    }
    return copy;
}

Chain read_chain(const Test& test, TensorSet& tensors) {
    const Value& attributes = test.attributes();
    require_known(attributes,
                  {"op", "B", "T", "H", "D", "dtype", "rope", "norm", "seq_len", "checked_by", "judge"},
                  "attribute");
    Chain chain{.longest = attributes.at("seq_len").as_integer()};
    if (const Value& rope = attributes.at("rope"); !rope.is_null()) {
        chain.rope = read_rope(rope);
        chain.multiplier = rope.at("attention_factor").as_number();
        chain.positions = tensors.input("position_ids");
        const std::string& type = rope.at("scaling").at("type").as_text();
        if (type == "table") chain.rope->frequencies = numbers_of(tensors.input("inv_freq_table"));
        if (type == "cos_sin_table") {
            chain.cos = scaled(tensors.input("cos_table"), chain.multiplier);
            chain.sin = scaled(tensors.input("sin_table"), chain.multiplier);
            chain.tables = {chain.cos, chain.sin};
        }
    }
    if (const Value& norm = attributes.at("norm"); !norm.is_null()) {
        chain.norm = read_norm(norm);
        chain.weight = tensors.optional_input("weight");
    }
    return chain;
}

void turn(const Chain& chain, const TensorView& x, const Execution& execution) {
    if (!chain.tables.cos.empty()) return rotate(x, *chain.rope, chain.tables, chain.positions, execution);
    rotate(x, *chain.rope, chain.positions, chain.longest, execution);
}

// With both steps the numbers between them stay f32: the bound allows one rounding to the type of y.
Tensor run_chain(const Chain& chain, const ConstTensorView& x, const Execution& execution) {
    Tensor y = convert(x, chain.rope && chain.norm ? DType::f32 : x.dtype);
    const auto norm = [&] { normalize(y, *chain.norm, chain.weight, {}, execution); };
    if (chain.norm && !chain.norm->after_rope) norm();
    if (chain.rope) turn(chain, y, execution);
    if (chain.norm && chain.norm->after_rope) norm();
    return y.dtype() == x.dtype ? std::move(y) : convert(y, x.dtype);
}

// The chain in float64: y, A (the chain with absolute values) and the angle of every element.
struct Evaluation {
    std::int64_t T, H, D;
    std::vector<double> y, size, angle;
    std::int64_t numbers = 0;  // n of the bound

    Evaluation(const ConstTensorView& x) : T(x.size(1)), H(x.size(2)), D(x.size(3)), y(numbers_of(x)), numbers(D) {
        for (const double number : y) size.push_back(std::abs(number));
        angle.assign(y.size(), 0.0);
    }

    void turn(const Chain& chain, const std::vector<double>& frequencies) {
        const std::int64_t half = chain.rope->width / 2;
        const bool interleaved = chain.rope->pairs == Rope::Pairs::interleaved;
        for (std::size_t row = 0; row < y.size(); row += static_cast<std::size_t>(D)) {
            const auto token = static_cast<std::int64_t>(row) / (H * D);
            const std::int64_t position = load_i64(chain.positions.data, chain.positions.dtype, token);
            for (std::int64_t i = 0; i < half; ++i) {
                const std::int64_t first = chain.rope->offset + (interleaved ? 2 * i : i);
                const auto a = row + static_cast<std::size_t>(first);
                const auto b = a + static_cast<std::size_t>(interleaved ? 1 : half);
                double c = 0, s = 0, turned = 1;
                if (chain.tables.cos.empty()) {
                    turned = static_cast<double>(position) * frequencies[static_cast<std::size_t>(i)];
                    c = chain.multiplier * std::cos(turned), s = chain.multiplier * std::sin(turned);
                } else {
                    c = load_f64(chain.cos.view().data, DType::f32, position * half + i);
                    s = load_f64(chain.sin.view().data, DType::f32, position * half + i);
                }
                const double first_y = y[a] * c - y[b] * s;
                y[b] = y[b] * c + y[a] * s;
                y[a] = first_y;
                size[a] = size[b] = chain.multiplier * (size[a] + size[b]);
                angle[a] = angle[b] = std::abs(turned);
            }
        }
    }

    void normalize(const HeadNorm& norm, const std::vector<double>& weight, bool after_rope) {
        const std::int64_t together = norm.extent == HeadNorm::Extent::row ? H * D : D;
        numbers = together;
        for (std::int64_t begin = 0; begin < static_cast<std::int64_t>(y.size()); begin += together) {
            const auto from = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(together);
            double mean = 0, squares = 0, mean_size = 0, largest = 0;
            for (std::size_t i = from; i < from + count; ++i) {
                mean += y[i] / static_cast<double>(together);
                mean_size += size[i] / static_cast<double>(together);
                largest = std::max(largest, size[i]);
            }
            const bool centred = norm.kind == HeadNorm::Kind::layer_norm;
            if (!centred) mean = mean_size = 0;
            for (std::size_t i = from; i < from + count; ++i) squares += (y[i] - mean) * (y[i] - mean);
            const double sigma = std::sqrt(squares / static_cast<double>(together) + norm.eps);
            for (std::size_t i = from; i < from + count; ++i) {
                double w = weight.empty() ? 1 : weight[(i - from) % weight.size()];
                if (norm.weight == HeadNorm::Weight::one_plus_w) w += 1;
                y[i] = (y[i] - mean) / sigma * w;
                size[i] = std::abs(w) * (size[i] + mean_size) / sigma * (after_rope ? 1 + largest / sigma : 1);
            }
        }
        if (after_rope) spread_angles();
    }

    // After a norm the largest angle of the token counts for all its numbers.
    void spread_angles() {
        const auto token = static_cast<std::ptrdiff_t>(H * D);
        for (auto at = angle.begin(); at != angle.end(); at += token)
            std::fill(at, at + token, *std::max_element(at, at + token));
    }
};

bool has_tag(const Test& test, const std::string& tag) {
    const Value* tags = test.line.find("tags");
    return tags && std::any_of(tags->items.begin(), tags->items.end(),
                               [&](const Value& item) { return item.as_text() == tag; });
}

// README: u(sqrt n + 8 + (3 + ln theta)|angle|) A + u_t |y|, for f16 also 2^-25. Our tables come from f64 angles, so where
// angles are large (tag large_angle) |angle| counts as 1.
std::vector<double> bounds_of(const Evaluation& chain, DType dtype, double theta, bool large_angle) {
    const double ut = dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
    std::vector<double> bounds;
    for (std::size_t i = 0; i < chain.y.size(); ++i) {
        const double angle = large_angle ? std::min(chain.angle[i], 1.0) : chain.angle[i];
        const double factor = std::sqrt(static_cast<double>(chain.numbers)) + 8 + (3 + std::log(theta)) * angle;
        bounds.push_back(0x1p-24 * factor * chain.size[i] + ut * std::abs(chain.y[i]) +
                         (dtype == DType::f16 ? 0x1p-25 : 0));
    }
    return bounds;
}

// inv_freq, cos and sin, where the test has them: the numbers of rope_frequencies(), and what (1, 0) turns into.
void judge_angles(const Chain& chain, TensorSet& tensors, std::vector<OutputResult>& results,
                  const Execution& execution) {
    if (!chain.rope || !chain.tables.cos.empty()) return;
    Rope rope = *chain.rope;
    rope.offset = 0;
    const std::int64_t R = rope.width;
    const RopeFrequencies numbers = rope_frequencies(rope, R, chain.longest);
    if (!(std::abs(numbers.multiplier - chain.multiplier) <= 0x1p-48 * chain.multiplier)) {
        throw Error(ErrorCode::internal,
                    text("the multiplier is ", numbers.multiplier, ", expected ", chain.multiplier));
    }
    if (tensors.has_output("inv_freq")) {
        std::vector<double> bounds;
        for (const double f : numbers.frequencies) bounds.push_back(0x1p-46 * f);
        const ConstTensorView got(numbers.frequencies.data(), DType::f64, {R / 2});
        results.push_back(judge("inv_freq", got, tensors.expected("inv_freq"), bounds));
    }
    if (!tensors.has_output("cos")) return;
    rope.pairs = Rope::Pairs::half_split;
    const ConstTensorView expected = tensors.expected("cos");
    const std::int64_t B = expected.size(0), T = expected.size(1);
    Tensor unit(DType::f32, {B, T, 1, R});
    for (std::int64_t i = 0; i < unit.count(); ++i) unit.data<float>()[i] = i % R < R / 2 ? 1.0f : 0.0f;
    rotate(unit, rope, chain.positions, chain.longest, execution);
    std::vector<double> bounds;
    for (std::int64_t n = 0; n < expected.count(); ++n) {
        const auto position =
            static_cast<double>(load_i64(chain.positions.data, chain.positions.dtype, n / (R / 2)));
        const double angle = std::abs(position) * numbers.frequencies[static_cast<std::size_t>(n % (R / 2))];
        bounds.push_back(chain.multiplier * (0x1p-24 + 0x1p-46 * angle));
    }
    const ConstTensorView turned = std::as_const(unit).view().split_axis(3, 2, R / 2);  // [B,T,1,2,R/2]
    for (const auto& [name, side] : {std::pair{"cos", 0}, {"sin", 1}}) {
        const ConstTensorView one = turned.slice(3, side, 1);
        const ConstTensorView got(one.data, one.dtype, {B, T, R / 2}, {one.stride(0), one.stride(1), 1});
        results.push_back(judge(name, got, tensors.expected(name), bounds));
    }
}

}  // namespace

Outcome run_rope_norm(const Test& test, const Execution& execution) {
    TensorSet tensors(test);
    const Chain chain = read_chain(test, tensors);
    const ConstTensorView x = tensors.input("x"), expected = tensors.expected("y");
    const Tensor y = run_chain(chain, x, execution);

    std::vector<double> frequencies, weight;
    if (chain.rope) frequencies = rope_frequencies(*chain.rope, x.size(3), chain.longest).frequencies;
    if (!chain.weight.empty()) weight = numbers_of(chain.weight);
    Evaluation evaluation(x);
    if (chain.norm && !chain.norm->after_rope) evaluation.normalize(*chain.norm, weight, false);
    if (chain.rope) evaluation.turn(chain, frequencies);
    if (chain.norm && chain.norm->after_rope) evaluation.normalize(*chain.norm, weight, true);

    const double theta = chain.rope ? chain.rope->theta : 1;
    const std::vector<double> bounds = bounds_of(evaluation, x.dtype, theta, has_tag(test, "large_angle"));
    std::vector<OutputResult> results = {judge("y", y, expected, bounds)};
    check_reference(results[0], evaluation.y, expected, bounds);
    judge_angles(chain, tensors, results, execution);
    return conclude(test, std::move(results));
}

}  // namespace headwise::conformance
