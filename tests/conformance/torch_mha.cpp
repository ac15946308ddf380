// Suite torch_mha: torch.nn.MultiheadAttention in terms of MultiHeadAttention. Gradients and weights are not judged.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <headwise/mha.h>

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
    if (attributes.at("add_bias_kv").as_bool()) throw Unsupported{"add_bias_kv"};
    if (attributes.at("add_zero_attn").as_bool()) throw Unsupported{"add_zero_attn"};
    if (attributes.at("dropout").as_number() != 0) throw Unsupported{"dropout"};
    if (attributes.at("is_causal").as_bool() && is_null(attributes, "attn_mask")) {
        throw Unsupported{"is_causal without attn_mask"};
    }
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
// float64 output itself.
struct Bounded {
    std::vector<double> output, bound;  // [N,L,E]
};

struct Sources {
    ConstTensorView query{}, key{}, value{};  // [N,L,E], [N,S,kdim], [N,S,vdim]
};

Bounded evaluate(const Sources& from, const MhaWeights& w, const Masks& masks, const Shape& shape) {
    using test::project;
    const auto [N, H, L, S, E] = shape;
    const std::int64_t D = E / H;
    const test::DenseRows q = project(from.query, w.q, w.q_bias, false),
                          k = project(from.key, w.k, w.k_bias, false);
    const test::DenseRows v = project(from.value, w.v, w.v_bias, false);
    test::DenseRows aq = project(from.query, w.q, w.q_bias, true), ak = project(from.key, w.k, w.k_bias, true);
    test::DenseRows av = project(from.value, w.v, w.v_bias, true);
    const AttendInputs in{.q = q.heads(H),
                          .k = k.heads(H),
                          .v = v.heads(H),
                          .mask = {.keep = masks.keep.view(), .bias = masks.bias.view()}};
    const double u = 0x1p-24, scale = 1 / std::sqrt(static_cast<double>(D));
    const double width = std::sqrt(static_cast<double>(std::max({E, w.k.size(1), w.v.size(1)})));

    test::DenseRows context{N, L, E, std::vector<double>(static_cast<std::size_t>(N * L * E))};
    test::DenseRows size = context;  // factor * sum p Av
    for (std::int64_t at = 0; at < N * L * H; ++at) {
        const std::int64_t h = at % H, l = at / H % L, n = at / (H * L);
        const test::Row<double> row = test::reference_row<double>(in, n, h, l, {});
        double M = 0;
        for (std::int64_t s = 0; s < S; ++s) {
            const auto t = static_cast<std::size_t>(s);
            const double p = row.seen[t] ? std::exp(row.s[t] - row.max) / row.sum : 0;
            double product = 0;
            for (std::int64_t d = h * D; d < (h + 1) * D; ++d) {
                context.at(n, l, d) += p * load_f64(v.values.data(), DType::f64, (n * S + s) * E + d);
                size.at(n, l, d) += p * av.at(n, s, d);
                product += aq.at(n, l, d) * ak.at(n, s, d);
            }
            if (p > 1e-12) M = std::max(M, 2 * scale * product);
        }
        M += 2 * masks.largest;
        const double factor = 2 * width + std::sqrt(static_cast<double>(S)) + 16 + 2 * (width / 4 + 2) * M;
        for (std::int64_t d = h * D; d < (h + 1) * D; ++d) size.at(n, l, d) *= u * factor;
    }

    const auto rows = [&](const test::DenseRows& x) {
        return ConstTensorView(x.values.data(), DType::f64, {N, L, E});
    };
    Bounded result{project(rows(context), w.o, w.o_bias, false).values, project(rows(size), w.o, {}, true).values};
    for (std::size_t i = 0; i < result.bound.size(); ++i) {
        const auto column = static_cast<std::int64_t>(i) % E;
        const double bias = w.o_bias.empty() ? 0 : std::abs(load_f64(w.o_bias.data, w.o_bias.dtype, column));
        result.bound[i] += 16 * u * bias + u * std::abs(result.output[i]);
    }
    return result;
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
    const Bounded reference = evaluate(from, weights, masks, shape);
    const ConstTensorView expected = batch_first(tensors.expected("output"), attributes);

    const MultiHeadAttention block({.embed_dim = shape.E,
                                    .heads = shape.H,
                                    .key_embed_dim = from.key.size(2),
                                    .value_embed_dim = from.value.size(2)},
                                   weights);
    const ForwardOptions options{.key = from.key,
                                 .value = from.value,
                                 .mask = {.keep = masks.keep.view(), .bias = masks.bias.view()},
                                 .execution = execution};
    Tensor storage = make_output(DType::f32, test.outputs.at("output").sizes);
    const TensorView y = batch_first(storage.view(), attributes);
    block.forward(from.query, y, options);
    OutputResult result = judge("output", y, expected, reference.bound);
    check_reference(result, reference.output, expected, reference.bound);
    return conclude(test, {std::move(result)});
}

}  // namespace headwise::conformance
