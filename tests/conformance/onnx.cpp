// Suite onnx: node tests of the operators, through <headwise/onnx.h>. Outputs keep the shape and type that the test
// declares, so what is judged is what a runtime would hand on.
#include <cmath>
#include <map>
#include <vector>

#include <headwise/onnx.h>

#include "conformance/judge.h"
#include "core/check.h"
#include "core/dtype.h"

namespace headwise::conformance {

namespace {

std::int64_t integer(const Test& test, const char* name, std::int64_t otherwise) {
    const Value* value = test.attributes().find(name);
    return value ? value->as_integer() : otherwise;
}

void require_inputs(const Test& test, const std::vector<std::string>& known) {
    Value names = Value::object();
    for (const auto& [name, decl] : test.inputs) names.set(name, true);
    require_known(names, known, "input");
}

// The output buffers of a test, by name; an output that the test does not have is not given.
class Outputs {
public:
    explicit Outputs(const Test& test) {
        for (const auto& [name, decl] : test.outputs) {
            buffers_.emplace(name, make_output(dtype_of(decl.dtype), decl.sizes));
        }
    }
    TensorView operator[](const char* name) {
        const auto found = buffers_.find(name);
        return found == buffers_.end() ? TensorView{} : found->second.view();
    }
    const std::map<std::string, Tensor>& all() const { return buffers_; }

private:
    std::map<std::string, Tensor> buffers_;
};

void run_attention_operator(const Test& test, TensorSet& tensors, Outputs& outputs, const Execution& execution) {
    require_known(test.attributes(),
                  {"scale", "softcap", "is_causal", "q_num_heads", "kv_num_heads", "left_window_size",
                   "right_window_size", "qk_matmul_output_mode", "softmax_precision"},
                  "attribute");
    require_inputs(test, {"Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"});
    onnx::AttentionAttributes attributes{
        .opset = static_cast<int>(test.line.at("opset").as_integer()),
        .is_causal = integer(test, "is_causal", 0) != 0,
        .q_num_heads = integer(test, "q_num_heads", 0),
        .kv_num_heads = integer(test, "kv_num_heads", 0),
        .left_window_size = integer(test, "left_window_size", -1),
        .right_window_size = integer(test, "right_window_size", -1),
        .qk_matmul_output_mode = static_cast<int>(integer(test, "qk_matmul_output_mode", 0)),
        .softmax_precision = static_cast<int>(integer(test, "softmax_precision", 0))};
    if (const Value* scale = test.attributes().find("scale")) attributes.scale = scale->as_number();
    if (const Value* softcap = test.attributes().find("softcap")) attributes.softcap = softcap->as_number();
    onnx::attention({.q = tensors.input("Q"),
                     .k = tensors.input("K"),
                     .v = tensors.input("V"),
                     .attn_mask = tensors.optional_input("attn_mask"),
                     .past_key = tensors.optional_input("past_key"),
                     .past_value = tensors.optional_input("past_value"),
                     .nonpad_kv_seqlen = tensors.optional_input("nonpad_kv_seqlen")},
                    attributes,
                    {.y = outputs["Y"],
                     .present_key = outputs["present_key"],
                     .present_value = outputs["present_value"],
                     .qk_matmul_output = outputs["qk_matmul_output"]},
                    execution);
}

void run_rotary(const Test& test, TensorSet& tensors, Outputs& outputs, const Execution& execution) {
    require_known(test.attributes(), {"interleaved", "num_heads", "rotary_embedding_dim"}, "attribute");
    require_inputs(test, {"X", "cos_cache", "sin_cache", "position_ids"});
    onnx::rotary_embedding(tensors.input("X"), tensors.input("cos_cache"), tensors.input("sin_cache"),
                           tensors.optional_input("position_ids"), outputs["Y"],
                           {.interleaved = integer(test, "interleaved", 0) != 0,
                            .num_heads = integer(test, "num_heads", 0),
                            .rotary_embedding_dim = integer(test, "rotary_embedding_dim", 0)},
                           execution);
}

void run_rms(const Test& test, TensorSet& tensors, Outputs& outputs, const Execution& execution) {
    require_known(test.attributes(), {"axis", "epsilon", "stash_type"}, "attribute");
    require_inputs(test, {"X", "scale"});
    onnx::RmsAttributes attributes{.axis = static_cast<int>(integer(test, "axis", -1))};
    if (const Value* epsilon = test.attributes().find("epsilon")) attributes.epsilon = epsilon->as_number();
    onnx::rms_normalization(tensors.input("X"), tensors.input("scale"), outputs["Y"], attributes, execution);
}

// |error| <= atol + rtol |expected|: what upstream allows. The present is a copy of its inputs: exact.
std::vector<double> tolerances(const Test& test, const std::string& output, const ConstTensorView& expected) {
    const double rtol = test.tolerance.at("rtol").as_number(), atol = test.tolerance.at("atol").as_number();
    const bool exact = output == "present_key" || output == "present_value";
    std::vector<double> bounds(static_cast<std::size_t>(expected.count()));
    for (std::size_t n = 0; !exact && n < bounds.size(); ++n) {
        const double value = load_f64(expected.data, expected.dtype, static_cast<std::int64_t>(n));
        bounds[n] = atol + rtol * std::abs(value);
    }
    return bounds;
}

}  // namespace

Outcome run_onnx(const Test& test, const Execution& execution) {
    const std::string& op = test.line.at("op").as_text();
    TensorSet tensors(test);
    Outputs outputs(test);
    if (op == "Attention") {
        run_attention_operator(test, tensors, outputs, execution);
    } else if (op == "RotaryEmbedding") {
        run_rotary(test, tensors, outputs, execution);
    } else if (op == "RMSNormalization") {
        run_rms(test, tensors, outputs, execution);
    } else {
        throw Unsupported{"op " + op};
    }
    std::vector<OutputResult> results;
    for (const auto& [name, got] : outputs.all()) {
        const ConstTensorView expected = tensors.expected(name);
        results.push_back(judge(name, got.view(), expected, tolerances(test, name, expected)));
    }
    return conclude(test, std::move(results));
}

}  // namespace headwise::conformance
