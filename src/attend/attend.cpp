#include "attend/attend.h"

#include <cmath>

#include "attend/problem.h"
#include "core/check.h"
#include "core/dtype.h"
#include "kernels/dispatch.h"

namespace headwise {
namespace {

enum class Path { direct, packed, reference_f64 };

// Up to this many query rows of one kv head, packing its keys and values costs more than it saves: 64 rows on one
// thread, but packed rows can be shared out among threads.
constexpr std::int64_t kDirectRows = 32;

// By one sequence's shape alone. Both f32 paths leave the same bits, so this is only a matter of speed.
Path path_of(DType dtype, std::int64_t rows_of_kv_head) {
    if (dtype == DType::f64) return Path::reference_f64;
    return rows_of_kv_head <= kDirectRows ? Path::direct : Path::packed;
}

// Some 20 microseconds on one core: below it, waking a thread costs more than it saves.
constexpr double kInlineWork = 5e5;

ScoreShape score_shape(const AttendInputs& in) {
    return {in.q.size(0), in.q.size(2), in.q.size(1), key_shape(in).S};
}

}  // namespace

Problem::Problem(const KernelTable& table, const AttendInputs& in, const AttendOutputs& outputs)
    : kernels(table),
      q(in.q),
      k(in.k),
      v(in.v),
      keys(table, in),
      held(in),
      out(outputs.out),
      lse(outputs.lse),
      B(in.q.size(0)),
      T(in.q.size(1)),
      S(key_shape(in).S),
      H(in.q.size(2)),
      G(key_shape(in).G),
      D(in.q.size(3)),
      Dv(key_shape(in).Dv),
      group(G > 0 ? H / G : 0),
      scale(in.scale ? *in.scale : 1.0 / std::sqrt(static_cast<double>(D))),
      visibility(held.mask, held.positions, score_shape(in)),
      rules(in) {}

namespace {

std::int64_t lse_index(const ConstTensorView& lse, const Visibility::Row& row) noexcept {
    return row.b * lse.stride(0) + row.h * lse.stride(1) + row.i * lse.stride(2);
}

}  // namespace

double load_lse(const ConstTensorView& lse, const Visibility::Row& row) noexcept {
    return load_f64(lse.data, lse.dtype, lse_index(lse, row));
}

void store_lse(const Problem& problem, const Visibility::Row& row, double value) noexcept {
    const TensorView& lse = problem.lse;
    if (lse.empty()) return;
    store_f64(lse.data, lse.dtype, lse_index(lse, row), value);
}

void attend(const KernelTable& table, const AttendInputs& inputs, const AttendOutputs& outputs,
            const Execution& execution) {
    const Problem problem(table, inputs, outputs);
    if (problem.B * problem.H * problem.T == 0) return;
    Execution chosen = execution;
    if (problem.work() < kInlineWork) chosen.threads = 1;
    switch (path_of(inputs.q.dtype, problem.rows_of_kv_head())) {
        case Path::direct:
            return attend_direct(problem, chosen);
        case Path::packed:
            return attend_packed(problem, chosen);
        case Path::reference_f64:
            return attend_f64(problem, chosen);
    }
}

void attend(const AttendInputs& inputs, const AttendOutputs& outputs, const Execution& execution) {
    check_attend(inputs, outputs);
    attend(kernels(), inputs, outputs, execution);
}

AttendPath attend_path(const AttendInputs& inputs) {
    check_attend_inputs(inputs);
    const std::int64_t H = inputs.q.size(2), G = key_shape(inputs).G, T = inputs.q.size(1);
    const std::int64_t rows = G > 0 ? T * (H / G) : 0;
    switch (path_of(inputs.q.dtype, rows)) {
        case Path::direct:
            return {"direct", text(rows, " query rows read each kv head, at most ", kDirectRows,
                                   ": keys and values are read where they lie")};
        case Path::packed:
            return {"packed", text(rows, " query rows read each kv head, more than ", kDirectRows,
                                   ": its keys and values are packed once for them")};
        case Path::reference_f64:
            return {"reference_f64", "q, k and v are f64, which a plain loop computes"};
    }
    return {};
}

}  // namespace headwise
