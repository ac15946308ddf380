// The second pass: scores and weights of chosen heads and rows, by the kernels and rules of attend() itself.
#include <headwise/scores.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "attend/attend.h"
#include "attend/row_rules.h"
#include "attend/score_f64.h"
#include "core/check_memory.h"
#include "core/parallel.h"
#include "kernels/dispatch.h"

namespace headwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- arguments -----------------------------------------------------------------------------------------------

struct Range {
    std::int64_t begin, end;
};

Range range_of(std::int64_t first, std::int64_t count, std::int64_t all, const char* where, const char* name) {
    const bool fits = first >= 0 && first <= all && count >= -1 && count <= all - first;
    check(fits, where, ": ", name, " ", first, " and ", count, " from there on; there are ", all,
          " (-1: all from the first on)");
    return {first, count < 0 ? all : first + count};
}

// Inputs without what does not change scores, a value of width 0 where there is none, and what is asked of them.
struct Resolved {
    Resolved(const AttendInputs& inputs, const ScoreRequest& asked, const char* where) : in(inputs) {
        in.gate = {}, in.dropout = {};
        if (in.cache == nullptr && in.k.rank == 4) {
            in.v = ConstTensorView(in.k.data, in.k.dtype, {in.k.size(0), in.k.size(1), in.k.size(2), 0});
        }
        check_attend_inputs(in);
        heads = range_of(asked.first_head, asked.heads, in.q.size(2), where, "heads");
        rows = range_of(asked.first_row, asked.rows, in.q.size(1), where, "rows");
        dtype = in.q.dtype == DType::f64 ? DType::f64 : DType::f32;
    }

    void check_target(const TensorView& to, std::initializer_list<std::int64_t> sizes, const char* where,
                      const char* axes) const {
        check(to.rank == static_cast<int>(sizes.size()) &&
                  std::equal(sizes.begin(), sizes.end(), to.sizes.begin()) && to.dtype == dtype,
              where, ": the target is ", to, " but must be ", ConstTensorView(nullptr, dtype, sizes), " = ", axes);
        check_memory(to, where, "the target");
    }

    // The lse that was given, or that of attend() over the same inputs.
    ConstTensorView lse_of(const ConstTensorView& given, const char* where, const Execution& execution) {
        const std::int64_t B = in.q.size(0), T = in.q.size(1), H = in.q.size(2);
        if (!given.empty()) {
            check(given.rank == 3 && given.size(0) == B && given.size(1) == H && given.size(2) == T &&
                      given.dtype == dtype,
                  where, ": lse is ", given, " but must be ", dtype, " [B,H,T] = [", B, ", ", H, ", ", T, "]");
            check_memory(given, where, "lse");
            return given;
        }
        Tensor out(dtype, {B, T, H, key_shape(in).Dv});
        lse = Tensor(dtype, {B, H, T});
        attend(in, {.out = out, .lse = lse}, execution);
        return lse.view();
    }

    AttendInputs in;
    Range heads{}, rows{};
    DType dtype = DType::f32;
    Tensor lse;
};

// Scores other than weights need no lse.
double lse_at(const ConstTensorView& lse, const Visibility::Row& row) {
    return lse.empty() ? 0 : load_lse(lse, row);
}

// ---- rows against one tile -----------------------------------------------------------------------------------

// A few rows of one kv head and what they make of any tile of its keys.
class ScoreTile {
public:
    ScoreTile(const Problem& problem, const RowBlock& block, void* scratch) noexcept
        : problem_(problem),
          block_(block),
          carver_(scratch),
          q_(carver_.take<float>(block.count * problem.D)),
          p_(carver_.take<float>(block.count * kKeyTile)),
          begin_(carver_.take<std::int32_t>(block.count)),
          end_(carver_.take<std::int32_t>(block.count)),
          in_place_(carver_.take<float>(in_place_scratch(problem.kernels.lanes, problem.D, 0))),
          gathered_(carver_.take<float>(problem.keys.scratch_floats())),
          rules_(problem, block, block.count, carver_) {
        if (scratch != nullptr) rules_.load(q_);
    }
    std::size_t scratch_bytes() const noexcept { return carver_.used(); }

    // Every score of the tile that starts at key `first`, rows kKeyTile floats apart.
    float* run(ScoreKind kind, std::int64_t first, const ConstTensorView& lse) noexcept {
        const int keys = static_cast<int>(std::min<std::int64_t>(kKeyTile, problem_.S - first));
        AttendTile tile{.rows = static_cast<int>(block_.count),
                        .keys = keys,
                        .D = problem_.D,
                        .Dv = 0,
                        .q = q_,
                        .q_stride = problem_.D,
                        .begin = begin_,
                        .end = end_,
                        .visible = nullptr,
                        .bias = nullptr,
                        .p = p_,
                        .max = nullptr,
                        .sum = nullptr,
                        .o = nullptr,
                        .o_stride = 0,
                        .scratch = in_place_};
        const bool masked = kind == ScoreKind::masked || kind == ScoreKind::weights;
        const bool some = masked ? rules_.see(first, 0, tile) : see_all(first, keys);
        if (some) {
            const KeyRange needed = masked ? keys_of(problem_, block_) : KeyRange{0, problem_.keys.held(block_.b)};
            const KeySource::Rows rows = problem_.keys.read(
                {.b = block_.b, .g = block_.g, .first = first, .keys = keys, .needed = needed}, gathered_);
            problem_.kernels.attend.scores_in_place(tile, rows.k);
            if (kind != ScoreKind::raw) rules_.cap(tile);
        }
        for (int r = 0; r < tile.rows; ++r) {
            float* const p = p_ + r * kKeyTile;
            if (!some) {
                std::fill_n(p, keys, kind == ScoreKind::weights ? 0.0f : -std::numeric_limits<float>::infinity());
            } else if (masked) {
                end_row(kind, tile, r, lse_at(lse, problem_.row(block_.b, block_.g, block_.first + r)));
            } else {
                hide_lost(p, first, keys);
            }
        }
        return p_;
    }

private:
    bool see_all(std::int64_t first, int keys) noexcept {
        std::fill_n(begin_, block_.count, 0);
        std::fill_n(end_, block_.count, keys);
        return first < problem_.keys.held(block_.b);
    }

    void hide_lost(float* p, std::int64_t first, int keys) const noexcept {
        for (int n = 0; n < keys; ++n) {
            if (!problem_.keys.holds(block_.b, first + n)) p[n] = -std::numeric_limits<float>::infinity();
        }
    }

    // Bias and mask as softmax() applies them, and then the weight.
    static void end_row(ScoreKind kind, const AttendTile& tile, int r, double lse) noexcept {
        float* const p = tile.p + r * kKeyTile;
        const float* const bias = tile.bias == nullptr ? nullptr : tile.bias + r * kKeyTile;
        const std::uint8_t* const visible = tile.visible == nullptr ? nullptr : tile.visible + r * kKeyTile;
        const bool weights = kind == ScoreKind::weights;
        for (int n = 0; n < tile.keys; ++n) {
            const bool seen = n >= tile.begin[r] && n < tile.end[r] && (visible == nullptr || visible[n] != 0);
            if (!seen) {
                p[n] = weights ? 0.0f : -std::numeric_limits<float>::infinity();
                continue;
            }
            if (bias != nullptr) p[n] += bias[n];
            if (weights) p[n] = static_cast<float>(std::exp(p[n] - lse));
        }
    }

    const Problem& problem_;
    const RowBlock block_;
    Carver carver_;
    float *q_, *p_;
    std::int32_t *begin_, *end_;
    float *in_place_, *gathered_;
    RowRules rules_;
};

// The rows of a request within one kv head, in blocks of one kernel call.
class Blocks {
public:
    Blocks(const Problem& problem, const Resolved& asked, std::int64_t b, std::int64_t g) noexcept
        : problem_(problem), heads_(asked.heads), b_(b), g_(g) {
        const std::int64_t group = problem.group;
        first_ = asked.rows.begin * group, end_ = asked.rows.end * group;
        const bool whole = heads_.begin <= g * group && heads_.end >= (g + 1) * group;
        // With some heads of the group left out, row by row: the others are skipped.
        step_ = whole ? most(problem) : 1;
    }
    static std::int64_t most(const Problem& problem) noexcept { return 4 * problem.kernels.tile_rows; }

    template <class Body>
    void for_each(Body body) const {
        for (std::int64_t first = first_; first < end_; first += step_) {
            const std::int64_t head = g_ * problem_.group + first % problem_.group;
            if (step_ == 1 && (head < heads_.begin || head >= heads_.end)) continue;
            body(RowBlock{.b = b_, .g = g_, .first = first, .count = std::min(step_, end_ - first)});
        }
    }

private:
    const Problem& problem_;
    const Range heads_;
    const std::int64_t b_, g_;
    std::int64_t first_ = 0, end_ = 0, step_ = 1;
};

std::size_t tile_bytes(const Problem& problem) {
    return ScoreTile(problem, {.count = Blocks::most(problem)}, nullptr).scratch_bytes();
}

// ---- f32 -----------------------------------------------------------------------------------------------------

// The kv heads that the request needs.
Range kv_heads_of(const Problem& problem, const Resolved& asked) {
    if (asked.heads.begin >= asked.heads.end) return {0, 0};
    return {asked.heads.begin / problem.group, (asked.heads.end - 1) / problem.group + 1};
}

void write_scores(const Problem& problem, const Resolved& asked, ScoreKind kind, const ConstTensorView& lse,
                  const TensorView& to, const Execution& execution) {
    const Range kv = kv_heads_of(problem, asked);
    const std::int64_t count = kv.end - kv.begin, tiles = (problem.S + kKeyTile - 1) / kKeyTile;
    const std::size_t bytes = tile_bytes(problem);
    parallel_for(execution, problem.B * count * tiles, [&](std::int64_t task) {
        const std::int64_t b = task / tiles / count, g = kv.begin + task / tiles % count;
        const std::int64_t first = task % tiles * kKeyTile,
                           keys = std::min<std::int64_t>(kKeyTile, problem.S - first);
        const Scratch scratch(bytes);
        Blocks(problem, asked, b, g).for_each([&](const RowBlock& block) {
            const float* const p = ScoreTile(problem, block, scratch.data<void>()).run(kind, first, lse);
            for (std::int64_t r = 0; r < block.count; ++r) {
                const Visibility::Row row = problem.row(b, g, block.first + r);
                float* const target = static_cast<float*>(to.data) + b * to.stride(0) +
                                      (row.h - asked.heads.begin) * to.stride(1) +
                                      (row.i - asked.rows.begin) * to.stride(2) + first * to.stride(3);
                for (std::int64_t n = 0; n < keys; ++n) target[n * to.stride(3)] = p[r * kKeyTile + n];
            }
        });
    });
}

// Sums in f64 over the rows in order, rounded once.
void write_sums(const Problem& problem, const Resolved& asked, const ConstTensorView& lse, const TensorView& to,
                const Execution& execution) {
    const Range kv = kv_heads_of(problem, asked);
    const std::int64_t count = kv.end - kv.begin, tiles = (problem.S + kKeyTile - 1) / kKeyTile;
    const std::size_t bytes = tile_bytes(problem);
    const std::size_t sums_bytes = static_cast<std::size_t>(problem.group) * kKeyTile * sizeof(double);
    parallel_for(execution, problem.B * count * tiles, [&](std::int64_t task) {
        const std::int64_t b = task / tiles / count, g = kv.begin + task / tiles % count;
        const std::int64_t first = task % tiles * kKeyTile,
                           keys = std::min<std::int64_t>(kKeyTile, problem.S - first);
        const Scratch scratch(bytes), memory(sums_bytes);
        double* const sums = memory.data<double>();
        std::fill_n(sums, problem.group * kKeyTile, 0.0);
        Blocks(problem, asked, b, g).for_each([&](const RowBlock& block) {
            const float* const p =
                ScoreTile(problem, block, scratch.data<void>()).run(ScoreKind::weights, first, lse);
            for (std::int64_t r = 0; r < block.count; ++r) {
                double* const of_head = sums + (block.first + r) % problem.group * kKeyTile;
                for (std::int64_t n = 0; n < keys; ++n) of_head[n] += static_cast<double>(p[r * kKeyTile + n]);
            }
        });
        for (std::int64_t h = std::max(asked.heads.begin, g * problem.group);
             h < std::min(asked.heads.end, (g + 1) * problem.group); ++h) {
            float* const target = static_cast<float*>(to.data) + b * to.stride(0) +
                                  (h - asked.heads.begin) * to.stride(1) + first * to.stride(2);
            for (std::int64_t n = 0; n < keys; ++n) {
                target[n * to.stride(2)] = static_cast<float>(sums[h % problem.group * kKeyTile + n]);
            }
        }
    });
}

// ---- f64 -----------------------------------------------------------------------------------------------------

double score_f64(const ScoreF64& score, ScoreKind kind, std::int64_t t, double lse) {
    if (kind == ScoreKind::raw) return score.raw(t);
    if (kind == ScoreKind::capped) return score.capped(t);
    double s = 0;
    if (!score.masked(t, s)) return kind == ScoreKind::weights ? 0.0 : -kInfinity;
    return kind == ScoreKind::weights ? std::exp(s - lse) : s;
}

// body(row, key, score) for all that is asked of one head, rows in order.
template <class Body>
void for_scores_f64(const Problem& problem, const Resolved& asked, ScoreKind kind, const ConstTensorView& lse,
                    const Execution& execution, Body body) {
    const std::int64_t heads = asked.heads.end - asked.heads.begin;
    parallel_for(execution, problem.B * heads, [&](std::int64_t task) {
        for (std::int64_t i = asked.rows.begin; i < asked.rows.end; ++i) {
            const Visibility::Row row{task / heads, asked.heads.begin + task % heads, i};
            const ScoreF64 score(problem, row);
            for (std::int64_t t = 0; t < problem.S; ++t) body(row, t, score_f64(score, kind, t, lse_at(lse, row)));
        }
    });
}

}  // namespace

void attend_scores(const AttendInputs& inputs, const ConstTensorView& lse, const ScoreRequest& request,
                   const TensorView& to, const Execution& execution) {
    constexpr const char* kWhere = "attend_scores";
    Resolved asked(inputs, request, kWhere);
    const Problem problem(kernels(), asked.in, {});
    asked.check_target(
        to, {problem.B, asked.heads.end - asked.heads.begin, asked.rows.end - asked.rows.begin, problem.S}, kWhere,
        "[B,heads,rows,S]");
    const bool weights = request.kind == ScoreKind::weights;
    const ConstTensorView sums = weights ? asked.lse_of(lse, kWhere, execution) : ConstTensorView{};
    if (asked.dtype == DType::f32) return write_scores(problem, asked, request.kind, sums, to, execution);
    for_scores_f64(problem, asked, request.kind, sums, execution,
                   [&](const Visibility::Row& row, std::int64_t t, double s) {
                       const std::int64_t at = row.b * to.stride(0) + (row.h - asked.heads.begin) * to.stride(1) +
                                               (row.i - asked.rows.begin) * to.stride(2) + t * to.stride(3);
                       static_cast<double*>(to.data)[at] = s;
                   });
}

void attend_column_sums(const AttendInputs& inputs, const ConstTensorView& lse, const ScoreRequest& request,
                        const TensorView& to, const Execution& execution) {
    constexpr const char* kWhere = "attend_column_sums";
    check(request.kind == ScoreKind::weights, kWhere, ": only weights can be summed up");
    Resolved asked(inputs, request, kWhere);
    const Problem problem(kernels(), asked.in, {});
    asked.check_target(to, {problem.B, asked.heads.end - asked.heads.begin, problem.S}, kWhere, "[B,heads,S]");
    const ConstTensorView sums = asked.lse_of(lse, kWhere, execution);
    if (asked.dtype == DType::f32) return write_sums(problem, asked, sums, to, execution);
    const auto add = [&](const Visibility::Row& row, std::int64_t t, double s) {
        double& sum = static_cast<double*>(
            to.data)[row.b * to.stride(0) + (row.h - asked.heads.begin) * to.stride(1) + t * to.stride(2)];
        sum = row.i == asked.rows.begin ? s : sum + s;
    };
    if (asked.rows.begin == asked.rows.end) {
        for (std::int64_t n = 0; n < to.count(); ++n) {
            const std::int64_t t = n % problem.S, h = n / problem.S % to.size(1), b = n / problem.S / to.size(1);
            static_cast<double*>(to.data)[b * to.stride(0) + h * to.stride(1) + t * to.stride(2)] = 0;
        }
    }
    for_scores_f64(problem, asked, ScoreKind::weights, sums, execution, add);
}

}  // namespace headwise
