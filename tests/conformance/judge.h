// Comparing one output with its expected values, and what a test's outputs add up to.
#pragma once

#include <string>
#include <vector>

#include <headwise/cpu.h>
#include <headwise/tensor.h>

#include "conformance/manifest.h"

namespace headwise::conformance {

// Thrown by an adapter for an input or attribute that headwise does not have yet: the test is skipped, and `what` names
// it. Never for a wrong result.
struct Unsupported {
    std::string what;
};

struct OutputResult {
    std::string name;
    double worst_ratio = 0;  // largest error / bound; Inf where an error meets the bound 0
    std::string fault{};     // the first element beyond its bound, or NaN and Inf in the wrong places; empty: none
};

enum class Status { pass, fail, skip };
const char* name_of(Status status);  // "PASS", "FAIL", "SKIP"

struct Outcome {
    Status status = Status::pass;
    std::string reason{};  // of a failure or a skip
    std::vector<OutputResult> outputs{};
    std::vector<std::string> not_judged{};
};

// PASS if no output has a fault, and at least one was judged. Expected outputs of the test without a result are named
// as not judged. With `judge: record_only` a fault never fails.
Outcome conclude(const Test& test, std::vector<OutputResult> results);

struct JudgeRules {
    bool nan_may_be_inf = false;  // where NaN is expected, +inf is accepted (lse)
};

// `got` and `expected` are views of the same shape; `bounds` lies row-major over it. NaN and Inf must sit exactly where
// `expected` has them. A bound of 0 asks for equality; a negative one says that the element is not compared.
OutputResult judge(const std::string& name, const ConstTensorView& got, const ConstTensorView& expected,
                   const std::vector<double>& bounds, const JudgeRules& rules = {});

// Adds a fault to `result` where our own float64 evaluation does not say what the vector says, to 1 % of the bound: then
// the adapter or the vector is wrong, whatever the kernels do.
void check_reference(OutputResult& result, const std::vector<double>& reference, const ConstTensorView& expected,
                     const std::vector<double>& bounds);

// An output buffer of the declared storage shape, filled with a sentinel: a value that is no plausible result, so that
// an element that was not written shows, and so does one that must not be.
Tensor make_output(DType dtype, const std::vector<std::int64_t>& sizes);

// Names the first element of the storage that `view` (a view of it) does not cover and that lost the sentinel; empty if
// there is none.
std::string find_written_gap(const Tensor& storage, const TensorView& view);

// ---- one adapter per suite: a test of the manifest onto the public interface ----------------------------------

Outcome run_attention(const Test& test, const Execution& execution);
Outcome run_merge(const Test& test, const Execution& execution);
Outcome run_onnx(const Test& test, const Execution& execution);
Outcome run_torch_mha(const Test& test, const Execution& execution);
Outcome run_rope_norm(const Test& test, const Execution& execution);
Outcome run_models(const Test& test, const Execution& execution);

// Throws Unsupported for the first key of `object` that is not in `known`: nothing is ever ignored silently.
void require_known(const Value& object, const std::vector<std::string>& known, const std::string& kind);

}  // namespace headwise::conformance
