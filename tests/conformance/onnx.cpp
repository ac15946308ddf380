// Suite onnx: the operator Attention (opsets 23 to 25) in terms of attend(). The cache of the operator is translated:
// past and new keys are joined here, so `present_key` and `present_value` are the adapter's own and must be exact
// copies. Bias and mask inputs, windows and positions go to attend() as they are.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <headwise/attend.h>

#include "conformance/judge.h"
#include "core/check.h"
#include "core/dtype.h"

namespace headwise::conformance {

namespace {

const Value* attribute(const Test& test, const char* name) { return test.attributes().find(name); }

std::int64_t integer(const Test& test, const char* name, std::int64_t otherwise) {
    const Value* value = attribute(test, name);
    return value ? value->as_integer() : otherwise;
}

void require_supported(const Test& test) {
    const std::string& op = test.line.at("op").as_text();
    if (op == "RotaryEmbedding") throw Unsupported{"RotaryEmbedding with tables (cos_cache, sin_cache)"};
    if (op == "RMSNormalization") throw Unsupported{"RMSNormalization (QK-norm)"};
    if (op != "Attention") throw Unsupported{"op " + op};
    const std::int64_t opset = test.line.at("opset").as_integer();
    if (opset < 23 || opset > 25) throw Unsupported{text("opset ", opset)};
    const Value* softcap = attribute(test, "softcap");
    if (softcap && softcap->as_number() != 0) throw Unsupported{"softcap"};
    // qk_matmul_output_mode says what an output means that is not judged. softmax_precision asks for at least a type;
    // our f32 differs from f64 by rounding far below the suite's tolerance.
    require_known(test.attributes(),
                  {"scale", "softcap", "is_causal", "q_num_heads", "kv_num_heads", "left_window_size",
                   "right_window_size", "qk_matmul_output_mode", "softmax_precision"},
                  "attribute");
    for (const auto& [name, decl] : test.inputs) {
        static const std::vector<std::string> kInputs = {
            "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"};
        if (std::find(kInputs.begin(), kInputs.end(), name) == kInputs.end()) throw Unsupported{"input " + name};
    }
}

// [B,heads,tokens,width], or rank 3 [B,tokens,heads*width], as [B,tokens,heads,width].
template <class Data>
BasicView<Data> by_token(const BasicView<Data>& x, std::int64_t heads) {
    if (x.rank == 4) return x.swap_axes(1, 2);
    if (x.rank != 3 || heads <= 0 || x.size(2) % heads != 0) {
        throw BadData(text("rank 3 needs q_num_heads and kv_num_heads that divide the width: ", x.describe()));
    }
    return x.split_axis(2, heads, x.size(2) / heads);
}

// past [B,G,P,D] and fresh [B,L,G,D] joined along the tokens to a dense [B,G,P+L,D]. Without past: fresh alone.
Tensor join(const ConstTensorView& past, const ConstTensorView& fresh) {
    const std::int64_t B = fresh.size(0), L = fresh.size(1), G = fresh.size(2), D = fresh.size(3);
    const std::int64_t P = past.empty() ? 0 : past.size(2);
    Tensor joined(fresh.dtype, {B, G, P + L, D});
    const std::size_t row = static_cast<std::size_t>(D) * size_of(fresh.dtype);
    auto* to = static_cast<unsigned char*>(joined.view().data);
    for (std::int64_t b = 0; b < B; ++b)
        for (std::int64_t g = 0; g < G; ++g)
            for (std::int64_t t = 0; t < P + L; ++t, to += row) {
                const ConstTensorView from = t < P ? past.slice(0, b, 1).slice(1, g, 1).slice(2, t, 1)
                                                   : fresh.slice(0, b, 1).slice(1, t - P, 1).slice(2, g, 1);
                if (row > 0) std::memcpy(to, from.data, row);
            }
    return joined;
}

// A mask whose last axis is shorter than the keys is extended on the right with "not allowed". A last axis of 1 is one
// key from opset 24 on (the evaluator's reading), and broadcasts in opset 23 (the body of the function).
Tensor widen_mask(const ConstTensorView& mask, std::int64_t keys) {
    std::vector<std::int64_t> sizes(mask.sizes.begin(), mask.sizes.begin() + mask.rank);
    const std::int64_t width = sizes.back(), rows = width == 0 ? 0 : mask.count() / width;
    sizes.back() = keys;
    Tensor wide(mask.dtype, sizes);
    for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t t = 0; t < keys; ++t) {
            const std::int64_t to = row * keys + t, from = row * width + t;
            if (mask.dtype == DType::boolean) {
                wide.data<std::uint8_t>()[to] = t < width && static_cast<const std::uint8_t*>(mask.data)[from];
            } else {
                store_f64(
                    wide.view().data, mask.dtype, to,
                    t < width ? load_f64(mask.data, mask.dtype, from) : -std::numeric_limits<double>::infinity());
            }
        }
    return wide;
}

struct Translated {
    AttendInputs in{};
    Tensor keys{}, values{}, mask{};  // past joined with new ones; a short mask extended
    std::vector<std::int64_t> offsets{};
};

void translate_mask(const Test& test, TensorSet& tensors, Translated& to) {
    ConstTensorView mask = tensors.optional_input("attn_mask");
    if (mask.empty()) return;
    if (mask.dtype != DType::boolean && !is_float(mask.dtype)) throw Unsupported{"attn_mask of integers"};
    const std::int64_t keys = to.in.k.size(1), last = mask.rank > 0 ? mask.size(mask.rank - 1) : 1;
    const bool broadcasts = last == 1 && test.line.at("opset").as_integer() == 23;
    if (mask.rank > 0 && last < keys && !broadcasts) {
        to.mask = widen_mask(mask, keys);
        mask = to.mask;
    }
    (mask.dtype == DType::boolean ? to.in.mask.keep : to.in.mask.bias) = mask;
}

// Query row i stands at i + P after a past of P keys, at i + nonpad - T in an external cache, else at i.
void translate_positions(TensorSet& tensors, Translated& to) {
    const ConstTensorView lengths = tensors.optional_input("nonpad_kv_seqlen");
    const std::int64_t B = to.in.q.size(0), T = to.in.q.size(1);
    const std::int64_t P = tensors.has_input("past_key") ? tensors.input("past_key").size(2) : 0;
    to.offsets.assign(static_cast<std::size_t>(B), P);
    if (!lengths.empty()) {
        if (P > 0) throw BadData("nonpad_kv_seqlen and past_key exclude each other");
        for (std::int64_t b = 0; b < B; ++b) {
            to.offsets[static_cast<std::size_t>(b)] = load_i64(lengths.data, lengths.dtype, b) - T;
        }
        to.in.mask.key_lengths = lengths;
    }
    to.in.positions = lengths.empty() && P == 0
                          ? Positions::top_left()
                          : Positions::at(ConstTensorView(to.offsets.data(), DType::i64, {B}));
}

Translated translate(const Test& test, TensorSet& tensors) {
    Translated to;
    const std::int64_t kv_heads = integer(test, "kv_num_heads", 0);
    to.in.q = by_token(tensors.input("Q"), integer(test, "q_num_heads", 0));
    to.keys = join(tensors.optional_input("past_key"), by_token(tensors.input("K"), kv_heads));
    to.values = join(tensors.optional_input("past_value"), by_token(tensors.input("V"), kv_heads));
    to.in.k = std::as_const(to.keys).view().swap_axes(1, 2);
    to.in.v = std::as_const(to.values).view().swap_axes(1, 2);
    // Without a past the operands are passed as they are stored: strides of rank 3 stay tested.
    if (!tensors.has_input("past_key")) to.in.k = by_token(tensors.input("K"), kv_heads);
    if (!tensors.has_input("past_value")) to.in.v = by_token(tensors.input("V"), kv_heads);
    to.in.mask.causal = integer(test, "is_causal", 0) != 0;
    to.in.mask.window_left = integer(test, "left_window_size", -1);
    to.in.mask.window_right = integer(test, "right_window_size", -1);
    if (const Value* scale = attribute(test, "scale")) to.in.scale = scale->as_number();
    translate_positions(tensors, to);
    translate_mask(test, tensors, to);
    return to;
}

// |error| <= atol + rtol |expected|: what upstream allows.
std::vector<double> tolerances(const Test& test, const ConstTensorView& expected) {
    const double rtol = test.tolerance.at("rtol").as_number(), atol = test.tolerance.at("atol").as_number();
    std::vector<double> bounds(static_cast<std::size_t>(expected.count()));
    for (std::size_t n = 0; n < bounds.size(); ++n) {
        const double value = load_f64(expected.data, expected.dtype, static_cast<std::int64_t>(n));
        bounds[n] = atol + rtol * std::abs(value);
    }
    return bounds;
}

}  // namespace

Outcome run_onnx(const Test& test, const Execution& execution) {
    require_supported(test);
    TensorSet tensors(test);
    Translated to = translate(test, tensors);
    const ConstTensorView expected = tensors.expected("Y");
    Tensor y = make_output(expected.dtype, test.outputs.at("Y").sizes);
    attend(to.in, {.out = by_token(y.view(), to.in.q.size(2))}, execution);

    std::vector<OutputResult> results = {judge("Y", y, expected, tolerances(test, expected))};
    for (const auto& [name, joined] : {std::pair<std::string, const Tensor*>{"present_key", &to.keys},
                                       std::pair<std::string, const Tensor*>{"present_value", &to.values}}) {
        if (!tensors.has_output(name)) continue;
        const std::vector<double> exact(static_cast<std::size_t>(joined->count()), 0.0);
        results.push_back(judge(name, joined->view(), tensors.expected(name), exact));
    }
    return conclude(test, std::move(results));
}

}  // namespace headwise::conformance
