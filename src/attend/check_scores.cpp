// What attend() accepts besides q, k, v and a mask: numbers and tensors of the score pipeline.
#include <cmath>
#include <initializer_list>
#include <limits>

#include "attend/attend.h"
#include "core/check.h"
#include "core/check_memory.h"
#include "core/dtype.h"

namespace headwise {
namespace {

constexpr double kLargest = std::numeric_limits<float>::max();

void check_factors(const AttendInputs& in) {
    const bool f64 = in.q.dtype == DType::f64;
    if (in.scale) {
        check(std::isfinite(*in.scale), "attend: scale is ", *in.scale, " but must be finite");
        check(f64 || std::abs(*in.scale) <= kLargest, "attend: scale ", *in.scale, " is beyond the range of f32");
    }
    check(in.softcap >= 0 && std::isfinite(in.softcap), "attend: softcap is ", in.softcap,
          " but must be positive and finite, or 0 for none");
    const bool fits = in.softcap <= kLargest && (in.softcap == 0 || static_cast<float>(in.softcap) > 0);
    check(f64 || fits, "attend: softcap ", in.softcap, " is beyond the range of f32");
    const double p = in.dropout.probability;
    check(p >= 0 && p < 1, "attend: the dropout probability is ", p, " but must be in [0, 1)");
}

// An f32 tensor of these sizes, any strides; empty: fine.
void check_floats(const ConstTensorView& view, std::initializer_list<std::int64_t> sizes, const char* name,
                  const char* axes) {
    if (view.empty()) return;
    bool fits = view.dtype == DType::f32 && view.rank == static_cast<int>(sizes.size());
    for (int axis = 0; fits && axis < view.rank; ++axis) fits = view.size(axis) == sizes.begin()[axis];
    if (!fits) {
        const ConstTensorView wanted(nullptr, DType::f32, sizes);
        fail(ErrorCode::invalid_argument, "attend: ", name, " is ", view, " but must be ", wanted, " = ", axes);
    }
    check_memory(view, "attend", name);
}

void check_gate(const AttendInputs& in, std::int64_t Dv) {
    const ConstTensorView& gate = in.gate;
    if (gate.empty()) return;
    const std::int64_t B = in.q.size(0), T = in.q.size(1), H = in.q.size(2);
    check(gate.dtype == DType::f32 || gate.dtype == in.q.dtype, "attend: gate is ", gate, " but must be f32 or ",
          in.q.dtype, " like q");
    const bool heads =
        (gate.rank == 3 || gate.rank == 4) && gate.size(0) == B && gate.size(1) == T && gate.size(2) == H;
    check(heads && (gate.rank == 3 || gate.size(3) == Dv), "attend: gate is ", gate,
          " but must be [B,T,H] or [B,T,H,Dv] = [", B, ", ", T, ", ", H, ", ", Dv, "]");
    check(gate.rank == 3 || Dv <= 1 || gate.stride(3) == 1, "attend: gate is ", gate,
          "; its innermost stride must be 1 (other strides are free)");
    check_memory(gate, "attend", "gate");
}

}  // namespace

void check_scores(const AttendInputs& in, std::int64_t Dv) {
    check_factors(in);
    const std::int64_t B = in.q.size(0), T = in.q.size(1), H = in.q.size(2);
    check_floats(in.tau, {B, T}, "tau", "[B,T]");
    check_floats(in.alibi_slopes, {H}, "alibi_slopes", "[H]");
    check_floats(in.sinks, {H}, "sinks", "[H]");
    check_gate(in, Dv);
    const ConstTensorView& table = in.distance_bias.table;
    if (table.empty()) return;
    check(table.rank == 2 && table.size(1) > 0, "attend: distance_bias.table is ", table,
          " but must be f32 [H,N] with N > 0");
    check_floats(table, {H, table.size(1)}, "distance_bias.table", "[H,N]");
}

}  // namespace headwise
