// The vectors of suite attention with op "merge".
#include <algorithm>
#include <cmath>
#include <limits>

#include <headwise/attend.h>

#include "conformance/judge.h"
#include "core/dtype.h"

namespace headwise::conformance {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Out and lse in float64, and the bounds that the suite's README gives.
struct Expected {
    std::vector<double> out, out_bound, lse, lse_bound;
};

double unit_roundoff(DType dtype) {
    return dtype == DType::bf16 ? 0x1p-8 : dtype == DType::f16 ? 0x1p-11 : 0x1p-24;
}

Expected expect(const std::vector<AttendPart>& parts, DType dtype) {
    const ConstTensorView& shape = parts.front().out;
    const std::int64_t B = shape.size(0), T = shape.size(1), H = shape.size(2), Dv = shape.size(3);
    Expected expected;
    const auto rows = static_cast<std::size_t>(B * H * T);
    expected.out.resize(rows * static_cast<std::size_t>(Dv)), expected.out_bound = expected.out;
    for (std::int64_t row = 0; row < B * H * T; ++row) {
        const std::int64_t b = row / (H * T), h = row / T % H, i = row % T;
        double largest = -kInfinity, smallest = kInfinity, sum = 0;
        std::vector<double> lse;
        for (const AttendPart& part : parts) {
            lse.push_back(load_f64(part.lse.data, part.lse.dtype, row));
            if (!std::isfinite(lse.back())) continue;
            largest = std::max(largest, lse.back()), smallest = std::min(smallest, lse.back());
        }
        for (const double x : lse) sum += x == -kInfinity ? 0.0 : std::exp(x - largest);
        const double all = largest == -kInfinity ? largest : largest + std::log(sum);
        expected.lse.push_back(all);
        expected.lse_bound.push_back(std::isfinite(all) ? 4 * 0x1p-24 * (1 + std::abs(all)) : 0.0);
        for (std::int64_t c = 0; c < Dv; ++c) {
            const std::int64_t at = ((b * T + i) * H + h) * Dv + c;
            double out = 0, size = 0;
            for (std::size_t n = 0; n < parts.size(); ++n) {
                if (lse[n] == -kInfinity) continue;
                const double x = load_f64(parts[n].out.data, parts[n].out.dtype, at);
                const double weight = std::exp(lse[n] - largest) / sum;
                out += weight * x, size += weight * std::abs(x);
            }
            const double spread = largest == -kInfinity ? 0.0 : largest - smallest;
            expected.out[static_cast<std::size_t>(at)] = out;
            expected.out_bound[static_cast<std::size_t>(at)] =
                8 * 0x1p-24 * size * (1 + spread) + unit_roundoff(dtype) * std::abs(out);
        }
    }
    return expected;
}

}  // namespace

Outcome run_merge(const Test& test, const Execution& execution) {
    const Value& attributes = test.attributes();
    require_known(attributes,
                  {"op", "pieces", "B", "H", "T", "Dv", "dtype", "key_ranges", "special", "sink_in_piece",
                   "checked_by", "judge"},
                  "attribute");
    if (attributes.at("judge").as_text() != "merge")
        throw Unsupported{"judge " + attributes.at("judge").as_text()};
    TensorSet tensors(test);
    std::vector<AttendPart> parts;
    for (std::int64_t n = 0; n < attributes.at("pieces").as_integer(); ++n) {
        const std::string number = std::to_string(n);
        parts.push_back({.out = tensors.input("out_" + number), .lse = tensors.input("lse_" + number)});
    }
    if (parts.empty() || test.inputs.size() != 2 * parts.size()) throw BadData("a merge has two inputs a piece");
    const DType dtype = dtype_of(attributes.at("dtype").as_text());
    Tensor out = make_output(dtype, test.outputs.at("out").sizes);
    Tensor lse = make_output(DType::f32, test.outputs.at("lse").sizes);
    merge(parts, {.out = out.view(), .lse = lse.view()}, {}, execution);

    const Expected reference = expect(parts, dtype);
    std::vector<OutputResult> results = {judge("out", out.view(), tensors.expected("out"), reference.out_bound),
                                         judge("lse", lse.view(), tensors.expected("lse"), reference.lse_bound)};
    check_reference(results[0], reference.out, tensors.expected("out"), reference.out_bound);
    check_reference(results[1], reference.lse, tensors.expected("lse"), reference.lse_bound);
    return conclude(test, std::move(results));
}

}  // namespace headwise::conformance
