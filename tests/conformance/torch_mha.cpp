// Suite torch_mha: torch.nn.MultiheadAttention through its adapter. Gradients are not judged.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <headwise/torch_mha.h>

#include "conformance/judge.h"
#include "core/check.h"
#include "core/dtype.h"
#include "mha_reference.h"

namespace headwise::conformance {

namespace {

struct Shape {
    std::int64_t N = 0, H = 0, L = 0, S = 0, E = 0;
};

Shape shape_of(const Value& attributes) {
    const auto size = [&](const char* name) { return attributes.at(name).as_integer(); };
    return {size("N"), size("num_heads"), size("L"), size("S"), size("embed_dim")};
}

bool is_null(const Value& attributes, const char* name) { return attributes.at(name).is_null(); }

void require_supported(const Test& test) {
    const Value& attributes = test.attributes();
    // need_weights and average_attn_weights say what attn_weights holds; is_causal is a hint beside attn_mask.
    require_known(attributes,
                  {"embed_dim",
                   "num_heads",
                   "bias",
                   "kdim",
                   "vdim",
                   "add_bias_kv",
                   "add_zero_attn",
                   "batch_first",
                   "batched",
                   "N",
                   "L",
                   "S",
                   "need_weights",
                   "average_attn_weights",
                   "is_causal",
                   "dropout",
                   "key_padding_mask",
                   "attn_mask",
                   "empty_rows",
                   "judge",
                   "torch_behaviour",
                   "parameters"},
                  "attribute");
    if (attributes.at("dropout").as_number() != 0) throw Unsupported{"dropout"};
    std::vector<std::string> known = {"query", "key", "value", "attn_mask", "key_padding_mask", "grad_output"};
    for (const Value& name : attributes.at("parameters").as_list()) known.push_back(name.as_text());
    for (const auto& [name, decl] : test.inputs) {
        if (std::find(known.begin(), known.end(), name) == known.end()) throw Unsupported{"input " + name};
    }
}

// [N,L,E], [L,N,E] or unbatched [L,E], as [N,L,E].
template <class Data>
BasicView<Data> batch_first(const BasicView<Data>& x, const Value& attributes) {
    if (x.rank == 2) return BasicView<Data>(x.data, x.dtype, {1, x.size(0), x.size(1)});
    return attributes.at("batch_first").as_bool() ? x : x.swap_axes(0, 1);
}

// The packed parameters as the rows of q, k and v; kdim or vdim bring three weights instead.
MhaWeights read_weights(TensorSet& tensors, std::int64_t E) {
    MhaWeights weights;
    if (tensors.has_input("in_proj_weight")) {
        const ConstTensorView packed = tensors.input("in_proj_weight");
        weights.q = packed.slice(0, 0, E), weights.k = packed.slice(0, E, E),
        weights.v = packed.slice(0, 2 * E, E);
    } else {
        weights.q = tensors.input("q_proj_weight"), weights.k = tensors.input("k_proj_weight");
        weights.v = tensors.input("v_proj_weight");
    }
    if (tensors.has_input("in_proj_bias")) {
        const ConstTensorView packed = tensors.input("in_proj_bias");
        weights.q_bias = packed.slice(0, 0, E), weights.k_bias = packed.slice(0, E, E);
        weights.v_bias = packed.slice(0, 2 * E, E);
    }
    weights.o = tensors.input("out_proj.weight");
    weights.o_bias = tensors.optional_input("out_proj.bias");
    return weights;
}

// Both masks of torch as one pair of tensors [N,H,L,S]: what may be attended, and what is added. The sum is f64: two
// finite f32 masks never add up to -inf.
struct Masks {
    Tensor keep{}, bias{};
    double largest = 0;  // largest finite |added value|, for the bound
};

// `strides` places the mask's element of (n,h,l,s).
void add_mask(const ConstTensorView& mask, const Shape& shape, const std::array<std::int64_t, 4>& strides,
              Masks& to) {
    const auto [N, H, L, S, E] = shape;
    const bool hides = mask.dtype == DType::boolean;  // true = not attended
    Tensor& tensor = hides ? to.keep : to.bias;
    if (tensor.empty()) {
        tensor = Tensor(hides ? DType::boolean : DType::f64, {N, H, L, S});
        if (hides) std::fill_n(tensor.data<std::uint8_t>(), tensor.count(), std::uint8_t{1});
    }
    for (std::int64_t at = 0; at < tensor.count(); ++at) {
        const std::int64_t s = at % S, l = at / S % L, h = at / (S * L) % H, n = at / (S * L * H);
        const double value =
            load_f64(mask.data, mask.dtype, n * strides[0] + h * strides[1] + l * strides[2] + s * strides[3]);
        if (hides) {
            if (value != 0) tensor.data<std::uint8_t>()[at] = 0;
        } else {
            tensor.data<double>()[at] += value;
            if (std::isfinite(value)) to.largest = std::max(to.largest, std::abs(tensor.data<double>()[at]));
        }
    }
}

Masks read_masks(TensorSet& tensors, const Shape& shape) {
    Masks masks;
    const auto [N, H, L, S, E] = shape;
    if (tensors.has_input("key_padding_mask")) {
        add_mask(tensors.input("key_padding_mask"), shape, {S, 0, 0, 1}, masks);
    }
    if (tensors.has_input("attn_mask")) {
        const ConstTensorView mask = tensors.input("attn_mask");
        const bool per_head = mask.rank == 3;
        add_mask(mask, shape, {per_head ? H * L * S : 0, per_head ? L * S : 0, S, 1}, masks);
    }
    return masks;
}

// The README's bound: absolute values carried through the module, M from the weights that matter (p > 1e-12), and the
// float64 results themselves.
struct Bounded {
    std::vector<double> output, bound;           // [N,L,E]
    std::vector<double> weights, weights_bound;  // [N,H,L,S'], or the mean over H
};

struct Sources {
    ConstTensorView query{}, key{}, value{};  // [N,L,E], [N,S,kdim], [N,S,vdim]
};

// bias_k and bias_v [E], as one more key and value behind the S; then the zero key.
struct Appended {
    ConstTensorView key{}, value{};
    bool zero = false;

    std::int64_t count() const { return (key.empty() ? 0 : 1) + (zero ? 1 : 0); }
    double at(const ConstTensorView& view, std::int64_t n, std::int64_t i) const {
        return n == 0 && !view.empty() ? load_f64(view.data, view.dtype, i) : 0;
    }
};

class Reference {
public:
    Reference(const Sources& from, const MhaWeights& weights, const Masks& given, const Appended& more,
              const Shape& sizes)
        : w(weights), masks(given), appended(more), shape(sizes), keys(sizes.S + more.count()) {
        using test::project;
        q = project(from.query, w.q, w.q_bias, false), aq = project(from.query, w.q, w.q_bias, true);
        k = project(from.key, w.k, w.k_bias, false), ak = project(from.key, w.k, w.k_bias, true);
        v = project(from.value, w.v, w.v_bias, false), av = project(from.value, w.v, w.v_bias, true);
        width = std::sqrt(static_cast<double>(std::max({shape.E, w.k.size(1), w.v.size(1)})));
    }

    Bounded evaluate(bool average) {
        const auto [N, H, L, S, E] = shape;
        context = {N, L, E, std::vector<double>(static_cast<std::size_t>(N * L * E))};
        size = context;
        Bounded result;
        result.weights.resize(static_cast<std::size_t>(N * (average ? 1 : H) * L * keys));
        result.weights_bound.assign(result.weights.size(), 1e-12);
        for (std::int64_t n = 0; n < N; ++n)
            for (std::int64_t h = 0; h < H; ++h)
                for (std::int64_t l = 0; l < L; ++l) {
                    const std::vector<double> p = weights_of(n, h, l);
                    const double factor = spread(n, h, l, p);
                    const double share = average ? 1 / static_cast<double>(H) : 1;
                    const std::int64_t row = average ? n * L + l : (n * H + h) * L + l;
                    for (std::int64_t t = 0; t < keys; ++t) {
                        const auto to = static_cast<std::size_t>(row * keys + t),
                                   from = static_cast<std::size_t>(t);
                        result.weights[to] += share * p[from];
                        result.weights_bound[to] += share * factor * p[from];
                    }
                }
        finish(result);
        return result;
    }

private:
    // <q, k> / sqrt(D), or the same of absolute values.
    double score(std::int64_t n, std::int64_t h, std::int64_t l, std::int64_t t, bool absolute) {
        const std::int64_t D = shape.E / shape.H;
        double sum = 0;
        for (std::int64_t d = h * D; d < (h + 1) * D; ++d) {
            double key = t < shape.S ? (absolute ? ak : k).at(n, t, d) : appended.at(appended.key, t - shape.S, d);
            if (absolute) key = std::abs(key);
            sum += (absolute ? aq : q).at(n, l, d) * key;
        }
        return sum / std::sqrt(static_cast<double>(D));
    }

    std::vector<double> weights_of(std::int64_t n, std::int64_t h, std::int64_t l) {
        const AttendInputs in{.q = q.heads(shape.H),
                              .k = k.heads(shape.H),
                              .v = v.heads(shape.H),
                              .mask = {.keep = masks.keep.view(), .bias = masks.bias.view()}};
        const test::Row<double> row = test::reference_row<double>(in, n, h, l, {});
        constexpr double kHidden = -std::numeric_limits<double>::infinity();
        std::vector<double> p(static_cast<std::size_t>(keys), kHidden);
        for (std::int64_t t = 0; t < keys; ++t) {
            const auto at = static_cast<std::size_t>(t);
            if (t >= shape.S) p[at] = score(n, h, l, t, false);
            if (t < shape.S && row.seen[at]) p[at] = row.s[at];
        }
        const double max = keys == 0 ? kHidden : *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& each : p) sum += each = max == kHidden ? 0 : std::exp(each - max);
        for (double& each : p) each = sum > 0 ? each / sum : 0;
        return p;
    }

    // Adds the values of one row and their sizes; returns the factor of the bound.
    double spread(std::int64_t n, std::int64_t h, std::int64_t l, const std::vector<double>& p) {
        const std::int64_t D = shape.E / shape.H;
        double M = 0;
        for (std::int64_t t = 0; t < keys; ++t) {
            const double weight = p[static_cast<std::size_t>(t)];
            for (std::int64_t d = h * D; weight > 0 && d < (h + 1) * D; ++d) {
                const double extra = appended.at(appended.value, t - shape.S, d);
                context.at(n, l, d) += weight * (t < shape.S ? v.at(n, t, d) : extra);
                size.at(n, l, d) += weight * (t < shape.S ? av.at(n, t, d) : std::abs(extra));
            }
            if (weight > 1e-12) M = std::max(M, 2 * score(n, h, l, t, true));
        }
        M += 2 * masks.largest;
        const double factor =
            0x1p-24 * (2 * width + std::sqrt(static_cast<double>(keys)) + 16 + 2 * (width / 4 + 2) * M);
        for (std::int64_t d = h * D; d < (h + 1) * D; ++d) size.at(n, l, d) *= factor;
        return factor;
    }

    void finish(Bounded& result) const {
        const auto rows = [&](const test::DenseRows& x) {
            return ConstTensorView(x.values.data(), DType::f64, {shape.N, shape.L, shape.E});
        };
        result.output = test::project(rows(context), w.o, w.o_bias, false).values;
        result.bound = test::project(rows(size), w.o, {}, true).values;
        for (std::size_t i = 0; i < result.bound.size(); ++i) {
            const auto column = static_cast<std::int64_t>(i) % shape.E;
            const double bias = w.o_bias.empty() ? 0 : std::abs(load_f64(w.o_bias.data, w.o_bias.dtype, column));
            result.bound[i] += 0x1p-24 * (16 * bias + std::abs(result.output[i]));
        }
    }

    const MhaWeights& w;
    const Masks& masks;
    const Appended& appended;
    const Shape shape;
    const std::int64_t keys;
    double width = 0;
    test::DenseRows q, k, v, aq, ak, av, context, size;
};

std::int64_t width_of(const Value& attributes, const char* name) {
    return is_null(attributes, name) ? 0 : attributes.at(name).as_integer();
}

TorchMultiheadAttention make_module(TensorSet& tensors, const Value& attributes) {
    std::map<std::string, ConstTensorView> state_dict;
    for (const Value& name : attributes.at("parameters").as_list())
        state_dict[name.as_text()] = tensors.input(name.as_text());
    return TorchMultiheadAttention({.embed_dim = attributes.at("embed_dim").as_integer(),
                                    .num_heads = attributes.at("num_heads").as_integer(),
                                    .bias = attributes.at("bias").as_bool(),
                                    .add_bias_kv = attributes.at("add_bias_kv").as_bool(),
                                    .add_zero_attn = attributes.at("add_zero_attn").as_bool(),
                                    .kdim = width_of(attributes, "kdim"),
                                    .vdim = width_of(attributes, "vdim"),
                                    .batch_first = attributes.at("batch_first").as_bool()},
                                   state_dict);
}

ConstTensorView row_of(const ConstTensorView& view) {  // [1,1,E] -> [E]
    return view.empty() ? view : ConstTensorView(view.data, view.dtype, {view.size(2)}, {view.stride(2)});
}

}  // namespace

Outcome run_torch_mha(const Test& test, const Execution& execution) {
    require_supported(test);
    const Value& attributes = test.attributes();
    const Shape shape = shape_of(attributes);
    TensorSet tensors(test);
    const Sources from{.query = batch_first(tensors.input("query"), attributes),
                       .key = batch_first(tensors.input("key"), attributes),
                       .value = batch_first(tensors.input("value"), attributes)};
    const MhaWeights weights = read_weights(tensors, shape.E);
    const Masks masks = read_masks(tensors, shape);
    const Appended appended{.key = row_of(tensors.optional_input("bias_k")),
                            .value = row_of(tensors.optional_input("bias_v")),
                            .zero = attributes.at("add_zero_attn").as_bool()};
    const bool average = attributes.at("average_attn_weights").as_bool();
    const Bounded reference = Reference(from, weights, masks, appended, shape).evaluate(average);

    const TorchMultiheadAttention module = make_module(tensors, attributes);
    const TorchMultiheadAttention::Result got =
        module.forward(tensors.input("query"), tensors.input("key"), tensors.input("value"),
                       {.key_padding_mask = tensors.optional_input("key_padding_mask"),
                        .attn_mask = tensors.optional_input("attn_mask"),
                        .is_causal = attributes.at("is_causal").as_bool(),
                        .need_weights = attributes.at("need_weights").as_bool(),
                        .average_attn_weights = average,
                        .execution = execution});
    std::vector<OutputResult> results;
    const ConstTensorView expected = batch_first(tensors.expected("output"), attributes);
    results.push_back(judge("output", batch_first(got.output.view(), attributes), expected, reference.bound));
    check_reference(results.back(), reference.output, expected, reference.bound);
    if (tensors.has_output("attn_weights")) {
        const ConstTensorView wanted = tensors.expected("attn_weights");
        results.push_back(judge("attn_weights", got.weights.view(), wanted, reference.weights_bound));
        check_reference(results.back(), reference.weights, wanted, reference.weights_bound);
    }
    return conclude(test, std::move(results));
}

}  // namespace headwise::conformance
