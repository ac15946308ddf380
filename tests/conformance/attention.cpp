// Suite attention: tests/vectors/attention/README.md says what every attribute and input means.
#include <algorithm>
#include <array>

#include <headwise/attend.h>

#include "conformance/judge.h"
#include "core/check.h"
#include "reference.h"

namespace headwise::conformance {

namespace {

// What attend() expresses today, and what describes the vector without changing the result.
const std::vector<std::string> kAttributes = {
    "op",         "B",           "H",       "G",           "T",
    "S",          "D",           "Dv",      "dtype",       "scale",
    "softcap",    "causal",      "offsets", "chunk",       "tau",
    "keep_first", "window_left", "layout",  "offset_rule", "window_right",
    "empty_rows", "views",       "judge",   "nonfinite",   "hidden_pairs",
    "checked_by"};

void require_supported(const Test& test) {
    const Value& attributes = test.attributes();
    if (attributes.at("op").as_text() != "attention") throw Unsupported{"op " + attributes.at("op").as_text()};
    std::vector<std::string> known = {"mask", "bias", "key_lengths", "alibi_slopes", "sink", "tau",
                                      "gate", "cu_q", "cu_k",        "dout",         "dlse"};
    const Value& views = attributes.at("views");
    for (const Value& view : views.items) known.push_back(view.at("tensor").as_text());
    for (const auto& [name, decl] : test.inputs) {
        if (std::find(known.begin(), known.end(), name) == known.end()) throw Unsupported{"input " + name};
    }
    require_known(attributes, kAttributes, "attribute");
    const std::string& judge = attributes.at("judge").as_text();
    if (judge != "bound" && judge != "score_without_bias" && judge != "record_only") {
        throw Unsupported{"judge " + judge};
    }
}

// The logical axes [B,heads,tokens,width] of a stored tensor, as the manifest places them; returned in the order of the
// public interface, [B,tokens,heads,width].
template <class Data>
BasicView<Data> place(const Value& view, const BasicView<Data>& storage, std::array<std::int64_t, 4> sizes) {
    const std::vector<std::int64_t> strides = view.at("strides").as_integers();
    const std::int64_t offset = view.at("offset").as_integer();
    if (strides.size() != 4) throw BadData("a view has four strides");
    std::int64_t last = offset;
    for (std::size_t axis = 0; axis < 4; ++axis)
        last += std::max<std::int64_t>(0, sizes[axis] - 1) * strides[axis];
    BasicView<Data> placed(storage.data, storage.dtype, sizes, strides);
    if (placed.count() > 0) {
        if (offset < 0 || last >= storage.count()) throw BadData("a view leaves its tensor");
        using Byte = std::conditional_t<std::is_const_v<Data>, const unsigned char, unsigned char>;
        placed.data =
            static_cast<Byte*>(storage.data) + offset * static_cast<std::int64_t>(size_of(storage.dtype));
    }
    return placed.swap_axes(1, 2);
}

// The rule where one names the offsets, so that the defaults are tested too.
Positions read_positions(const Value& attributes, const Documents& documents, std::vector<std::int64_t>& offsets) {
    const std::string& rule = attributes.at("offset_rule").as_text();
    offsets = attributes.at("offsets").as_integers();
    const auto length = [](const ConstTensorView& cu, std::size_t d) {
        const auto n = static_cast<std::int64_t>(d);
        return test::number(cu, n + 1) - test::number(cu, n);
    };
    const auto named = [&](std::size_t sequence) {
        if (rule != "bottom_right") return std::int64_t{0};
        if (documents.queries.empty()) return attributes.at("S").as_integer() - attributes.at("T").as_integer();
        return length(documents.keys, sequence) - length(documents.queries, sequence);
    };
    if (rule == "explicit") {
        return Positions::at(
            ConstTensorView(offsets.data(), DType::i64, {static_cast<std::int64_t>(offsets.size())}));
    }
    if (rule != "bottom_right" && rule != "top_left") throw Unsupported{"offset_rule " + rule};
    for (std::size_t n = 0; n < offsets.size(); ++n) {
        if (offsets[n] != named(n)) throw BadData("the offsets are not those of the rule " + rule);
    }
    return rule == "top_left" ? Positions::top_left() : Positions{};
}

}  // namespace

Outcome run_attention(const Test& test, const Execution& execution) {
    if (test.attributes().at("op").as_text() == "merge") return run_merge(test, execution);
    require_supported(test);
    const Value& attributes = test.attributes();
    const auto size = [&](const char* letter) { return attributes.at(letter).as_integer(); };
    const std::int64_t B = size("B"), H = size("H"), G = size("G"), T = size("T"), S = size("S");
    const Value& views = attributes.at("views");
    TensorSet tensors(test);
    const auto input = [&](const char* name, std::array<std::int64_t, 4> sizes) {
        return place(views.at(name), tensors.input(views.at(name).at("tensor").as_text()), sizes);
    };

    std::vector<std::int64_t> offsets;
    AttendInputs in{
        .q = input("q", {B, H, T, size("D")}),
        .k = input("k", {B, G, S, size("D")}),
        .v = input("v", {B, G, S, size("Dv")}),
        .mask = {.causal = attributes.at("causal").as_bool(),
                 .window_left = size("window_left"),
                 .window_right = size("window_right"),
                 .keep_first = size("keep_first"),
                 .chunk = size("chunk"),
                 .key_lengths = tensors.optional_input("key_lengths"),
                 .documents = {.queries = tensors.optional_input("cu_q"), .keys = tensors.optional_input("cu_k")},
                 .keep = tensors.optional_input("mask"),
                 .bias = tensors.optional_input("bias")},
        .softcap = attributes.at("softcap").as_number(),
        .tau = tensors.optional_input("tau"),
        .alibi_slopes = tensors.optional_input("alibi_slopes"),
        .sinks = tensors.optional_input("sink"),
        .gate = tensors.optional_input("gate")};
    in.positions = read_positions(attributes, in.mask.documents, offsets);
    if (!attributes.at("scale").is_null()) in.scale = attributes.at("scale").as_number();

    const DType dtype = dtype_of(attributes.at("dtype").as_text());
    const test::Expected<double> reference = test::reference<double>(
        in, {.out = dtype, .score_without_bias = attributes.at("judge").as_text() == "score_without_bias"});
    const Value& out_view = views.at("out");
    const ConstTensorView expected = place(out_view, tensors.expected("out"), {B, H, T, size("Dv")});

    Tensor storage = make_output(dtype, test.outputs.at("out").sizes);
    AttendOutputs out{.out = place(out_view, storage.view(), {B, H, T, size("Dv")})};
    Tensor lse = make_output(DType::f32, {B, H, T});
    if (tensors.has_output("lse")) out.lse = lse.view();
    attend(in, out, execution);

    std::vector<OutputResult> results = {judge("out", out.out, expected, reference.out_bound)};
    check_reference(results[0], reference.out, expected, reference.out_bound);
    if (const std::string gap = find_written_gap(storage, out.out); !gap.empty()) results[0].fault = gap;
    if (tensors.has_output("lse")) {
        const ConstTensorView want = tensors.expected("lse");
        results.push_back(judge("lse", out.lse, want, reference.lse_bound, {.nan_may_be_inf = true}));
        check_reference(results[1], reference.lse, want, reference.lse_bound);
    }
    return conclude(test, std::move(results));
}

}  // namespace headwise::conformance
