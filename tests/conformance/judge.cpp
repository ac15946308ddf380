#include "conformance/judge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <sstream>

#include "core/check.h"
#include "core/dtype.h"

namespace headwise::conformance {

namespace {

// As f16 it is -7.8, as bf16 and f32 about -1e5.
constexpr unsigned char kSentinelByte = 0xc7;

// Walks the elements of a view in row-major order.
class Walk {
public:
    explicit Walk(const ConstTensorView& view) : view_(view) {}
    std::int64_t offset() const { return offset_; }  // in elements, from the address of the view
    void next() {
        for (int axis = view_.rank; axis-- > 0;) {
            const auto i = static_cast<std::size_t>(axis);
            offset_ += view_.strides[i];
            if (++at_[i] < view_.sizes[i]) return;
            offset_ -= at_[i] * view_.strides[i];
            at_[i] = 0;
        }
    }
    std::string place() const {
        std::ostringstream words;
        for (int axis = 0; axis < view_.rank; ++axis) {
            words << (axis == 0 ? "[" : ",") << at_[static_cast<std::size_t>(axis)];
        }
        words << (view_.rank == 0 ? "[]" : "]");
        return words.str();
    }

private:
    ConstTensorView view_;
    std::array<std::int64_t, kMaxRank> at_{};
    std::int64_t offset_ = 0;
};

// NaN and Inf as expected? Only where they are, errors are worth measuring.
bool same_kind(double got, double expected, const JudgeRules& rules) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    if (std::isnan(expected)) return std::isnan(got) || (rules.nan_may_be_inf && got == kInf);
    if (std::isinf(expected)) return got == expected;
    return std::isfinite(got);
}

double ratio_of(double error, double bound) {
    if (error == 0) return 0;
    return bound > 0 ? error / bound : std::numeric_limits<double>::infinity();
}

}  // namespace

const char* name_of(Status status) {
    return status == Status::pass ? "PASS" : status == Status::fail ? "FAIL" : "SKIP";
}

OutputResult judge(const std::string& name, const ConstTensorView& got, const ConstTensorView& expected,
                   const std::vector<double>& bounds, const JudgeRules& rules) {
    if (got.rank != expected.rank || got.sizes != expected.sizes ||
        bounds.size() != static_cast<std::size_t>(expected.count())) {
        throw BadData(text(name, ": got ", got.describe(), " and ", bounds.size(), " bounds, expected ",
                           expected.describe()));
    }
    OutputResult result{.name = name};
    std::int64_t misplaced = 0, beyond = 0;
    std::string first_misplaced, first_beyond;
    Walk g(got), e(expected);
    for (std::size_t n = 0; n < bounds.size(); ++n, g.next(), e.next()) {
        if (bounds[n] < 0) continue;
        const double value = load_f64(got.data, got.dtype, g.offset());
        const double want = load_f64(expected.data, expected.dtype, e.offset());
        if (!same_kind(value, want, rules)) {
            if (misplaced++ == 0) first_misplaced = text(g.place(), ": got ", value, ", expected ", want);
            continue;
        }
        if (!std::isfinite(want)) continue;
        const double error = std::abs(value - want);
        if (!(error <= bounds[n])) {  // also where the bound is NaN
            if (beyond++ == 0) {
                first_beyond = text(g.place(), ": got ", value, ", expected ", want, ", error ", error, ", bound ",
                                    bounds[n]);
            }
        }
        result.worst_ratio = std::max(result.worst_ratio, ratio_of(error, bounds[n]));
    }
    if (misplaced > 0) {
        result.fault = text(misplaced, " times NaN or Inf not as expected, first at ", first_misplaced);
    } else if (beyond > 0) {
        result.fault = text(beyond, " of ", bounds.size(), " beyond the bound, first at ", first_beyond);
    }
    return result;
}

void check_reference(OutputResult& result, const std::vector<double>& reference, const ConstTensorView& expected,
                     const std::vector<double>& bounds) {
    std::vector<double> tight(bounds);
    for (double& bound : tight) bound /= 100;
    const std::span<const std::int64_t> shape(expected.sizes.data(), static_cast<std::size_t>(expected.rank));
    const ConstTensorView own(reference.data(), DType::f64, shape);
    const OutputResult agreement = judge(result.name, own, expected, tight, {.nan_may_be_inf = true});
    if (agreement.fault.empty()) return;
    if (!result.fault.empty()) result.fault += "; ";
    result.fault += "the float64 evaluation disagrees with the vector: " + agreement.fault;
}

Tensor make_output(DType dtype, const std::vector<std::int64_t>& sizes) {
    Tensor tensor(dtype, sizes);
    const auto bytes = static_cast<std::size_t>(tensor.count()) * size_of(dtype);
    if (bytes > 0) std::memset(tensor.view().data, kSentinelByte, bytes);
    return tensor;
}

std::string find_written_gap(const Tensor& storage, const TensorView& view) {
    const std::size_t size = size_of(storage.dtype());
    const auto* begin = static_cast<const unsigned char*>(storage.view().data);
    std::vector<bool> covered(static_cast<std::size_t>(storage.count()));
    const std::int64_t start =
        (static_cast<const unsigned char*>(view.data) - begin) / static_cast<std::int64_t>(size);
    Walk walk(view);
    for (std::int64_t n = view.count(); n > 0; --n, walk.next()) {
        covered[static_cast<std::size_t>(start + walk.offset())] = true;
    }
    const auto is_sentinel = [](unsigned char byte) { return byte == kSentinelByte; };
    for (std::size_t n = 0; n < covered.size(); ++n) {
        const unsigned char* at = begin + n * size;
        if (!covered[n] && !std::all_of(at, at + size, is_sentinel)) {
            return text("element ", n, " of the storage lies between the rows and was written");
        }
    }
    return {};
}

Outcome conclude(const Test& test, std::vector<OutputResult> results) {
    Outcome outcome{.outputs = std::move(results)};
    for (const auto& [name, decl] : test.outputs) {
        const bool judged = std::any_of(outcome.outputs.begin(), outcome.outputs.end(),
                                        [&](const OutputResult& result) { return result.name == name; });
        if (!judged) outcome.not_judged.push_back(name);
    }
    if (outcome.outputs.empty())
        return {Status::skip, "none of its outputs is judged yet", {}, outcome.not_judged};
    const Value* attributes = test.line.find("attributes");
    const Value* how = attributes ? attributes->find("judge") : nullptr;
    const bool record_only = how && how->as_text() == "record_only";
    for (const OutputResult& result : outcome.outputs) {
        if (result.fault.empty()) continue;
        outcome.reason += (outcome.reason.empty() ? "" : "; ") + result.name + ": " + result.fault;
    }
    if (record_only) {
        outcome.reason = "record only" + (outcome.reason.empty() ? "" : ", not failed: " + outcome.reason);
    } else if (!outcome.reason.empty()) {
        outcome.status = Status::fail;
    }
    return outcome;
}

void require_known(const Value& object, const std::vector<std::string>& known, const std::string& kind) {
    for (const std::string& key : object.keys) {
        if (std::find(known.begin(), known.end(), key) == known.end()) throw Unsupported{kind + " " + key};
    }
}

}  // namespace headwise::conformance
