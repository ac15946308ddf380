// Every rule about what rotate() and normalize() accept. Below it shapes are trusted.
#include "heads/check.h"

#include <cmath>
#include <optional>

#include "core/check_memory.h"
#include "core/dtype.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

using Kind = RopeScaling::Kind;

void check_list(const std::vector<double>& list, const char* name, std::int64_t half, const char* where,
                bool may_be_zero = false) {
    check(static_cast<std::int64_t>(list.size()) == half, where, ": rope.", name, " has ", list.size(),
          " numbers, expected width / 2 = ", half);
    for (const double number : list) {
        check(std::isfinite(number) && (number > 0 || (may_be_zero && number == 0)), where, ": rope.", name,
              " holds ", number, ", expected positive finite numbers", may_be_zero ? " or 0" : "");
    }
}

void check_positive(double number, const char* name, const char* where) {
    check(std::isfinite(number) && number > 0, where, ": rope.scaling.", name, " is ", number,
          ", expected a positive finite number");
}

void check_count(std::int64_t number, const char* name, const char* kind, const char* where) {
    check(number > 0, where, ": rope.scaling.", name, " is ", number, ", but ", kind,
          " scaling needs the number of positions that the model was trained on");
}

void check_llama3(const RopeScaling& s, const char* where) {
    check_count(s.original_max_position, "original_max_position", "llama3", where);
    check_positive(s.low_freq_factor, "low_freq_factor", where);
    check_positive(s.high_freq_factor, "high_freq_factor", where);
    check(s.low_freq_factor <= s.high_freq_factor, where, ": rope.scaling.low_freq_factor is ", s.low_freq_factor,
          ", expected at most high_freq_factor = ", s.high_freq_factor);
}

void check_mscale(const std::optional<double>& scale, const char* name, const char* where) {
    check(!scale || (std::isfinite(*scale) && *scale >= 0), where, ": rope.scaling.", name, " is ",
          scale.value_or(0), ", expected a positive finite number, or 0 for not set");
}

void check_yarn(const RopeScaling& s, double theta, const char* where) {
    check_count(s.original_max_position, "original_max_position", "yarn", where);
    check_positive(s.beta_fast, "beta_fast", where);
    check_positive(s.beta_slow, "beta_slow", where);
    check(theta > 1, where, ": rope.theta is ", theta,
          ", but yarn scaling divides by its logarithm: expected above 1");
    check(s.beta_slow <= s.beta_fast, where, ": rope.scaling.beta_slow is ", s.beta_slow,
          ", expected at most beta_fast = ", s.beta_fast);
    check_mscale(s.mscale, "mscale", where);
    check_mscale(s.mscale_all_dim, "mscale_all_dim", where);
}

void check_longrope(const RopeScaling& s, std::int64_t half, const char* where) {
    check_count(s.original_max_position, "original_max_position", "longrope", where);
    check(s.attention_factor || s.factor <= 1 || s.original_max_position > 1, where,
          ": rope.scaling.original_max_position is 1, whose logarithm is 0; give attention_factor");
    check_list(s.short_factor, "scaling.short_factor", half, where);
    check_list(s.long_factor, "scaling.long_factor", half, where);
}

void check_scaling(const Rope& rope, std::int64_t half, const char* where) {
    const RopeScaling& s = rope.scaling;
    const bool has_factor = s.kind != Kind::none && s.kind != Kind::dynamic_alpha;
    if (has_factor) check_positive(s.factor, "factor", where);
    if (s.attention_factor) check_positive(*s.attention_factor, "attention_factor", where);
    switch (s.kind) {
        case Kind::none:
        case Kind::linear:
            return;
        case Kind::dynamic:
            return check_count(s.max_position, "max_position", "dynamic", where);
        case Kind::dynamic_alpha:
            return check_positive(s.alpha, "alpha", where);
        case Kind::llama3:
            return check_llama3(s, where);
        case Kind::yarn:
            return check_yarn(s, rope.theta, where);
        case Kind::longrope:
            return check_longrope(s, half, where);
    }
    check(false, where, ": rope.scaling.kind is ", static_cast<int>(s.kind), ", which is no RopeScaling::Kind");
}

void check_angles(const ConstTensorView& table, const char* name, const ConstTensorView& heads, std::int64_t half,
                  bool by_position, const char* where) {
    check(has_storage(table.dtype) && (table.rank == 2 || table.rank == 3), where, ": the table ", name, " is ",
          table, ", expected f32, bf16 or f16 [T,R/2] or [B,T,R/2], or with positions [P,R/2]");
    check(table.size(table.rank - 1) == half, where, ": the table ", name, " is ", table,
          ", expected R/2 = ", half, " columns, one for each pair that turns");
    check(half == 1 || table.stride(table.rank - 1) == 1, where, ": the table ", name, " is ", table,
          "; its innermost stride must be 1");
    check_memory(table, where, name);
    if (by_position) {
        check(table.rank == 2, where, ": the table ", name, " is ", table,
              ", but with positions it is read by position: expected [P,R/2]");
        return;
    }
    check(table.size(table.rank - 2) == heads.size(1) && (table.rank == 2 || table.size(0) == heads.size(0)),
          where, ": the table ", name, " is ", table, ", expected a row for each token, [", heads.size(1), ", ",
          half, "] or [", heads.size(0), ", ", heads.size(1), ", ", half,
          "]; give positions to read it by position");
}

}  // namespace

void check_heads(const TensorView& x, const char* where) {
    check(x.rank == 4 && has_storage(x.dtype), where, ": x is ", x, ", expected f32, bf16 or f16 [B,T,N,D]");
    check(x.size(3) <= 1 || x.stride(3) == 1, where, ": x is ", x,
          "; its innermost stride must be 1 (other strides are free)");
    check_writable(x, where, "x");
}

RopeLayout rope_layout(const Rope& rope, std::int64_t head_dim, const char* where) {
    check(rope.offset >= 0 && rope.offset < head_dim, where, ": rope.offset is ", rope.offset,
          ", expected a column of heads of width ", head_dim);
    check(rope.width >= 0, where, ": rope.width is ", rope.width,
          ", expected an even number of columns, or 0 for all");
    const std::int64_t width = rope.width == 0 ? head_dim - rope.offset : rope.width;
    check(width % 2 == 0, where, ": rope turns pairs of columns, so its width ", width,
          " must be even; the head has ", head_dim, " columns and rope.offset is ", rope.offset);
    check(width <= head_dim - rope.offset, where, ": rope.width ", width, " from column ", rope.offset,
          " on leaves the head, which has ", head_dim, " columns");
    check(rope.pairs == Rope::Pairs::half_split || rope.pairs == Rope::Pairs::interleaved, where,
          ": rope.pairs is ", static_cast<int>(rope.pairs), ", which is no Rope::Pairs");
    return {rope.pairs, width / 2, rope.offset, rope.inverse};
}

void check_rope(const Rope& rope, std::int64_t head_dim, const char* where) {
    const std::int64_t half = rope_layout(rope, head_dim, where).half;
    check(std::isfinite(rope.theta) && rope.theta > 0, where, ": rope.theta is ", rope.theta,
          ", expected a positive finite number");
    check_scaling(rope, half, where);
    if (!rope.divisors.empty()) check_list(rope.divisors, "divisors", half, where);
    if (rope.frequencies.empty()) return;
    check_list(rope.frequencies, "frequencies", half, where, true);
    const Kind kind = rope.scaling.kind;
    check(kind != Kind::dynamic && kind != Kind::dynamic_alpha && kind != Kind::yarn, where,
          ": explicit rope.frequencies exclude dynamic and yarn scaling, which work on theta");
}

void check_rope_positions(const ConstTensorView& positions, const ConstTensorView& heads, const char* where) {
    if (positions.empty()) return;
    const std::int64_t B = heads.size(0), T = heads.size(1);
    const bool integral = positions.dtype == DType::i32 || positions.dtype == DType::i64;
    const bool fits = positions.rank == 2 ? positions.size(0) == B && positions.size(1) == T
                                          : positions.rank == 1 && positions.size(0) == T;
    check(integral && fits, where, ": the positions are ", positions, ", expected i32 or i64 [", B, ", ", T,
          "] or [", T, "]");
    check_memory(positions, where, "positions");
}

void check_rope_tables(const RopeTables& tables, const ConstTensorView& heads, const RopeLayout& layout,
                       const ConstTensorView& positions, const char* where) {
    check_rope_positions(positions, heads, where);
    check_angles(tables.cos, "cos", heads, layout.half, !positions.empty(), where);
    check_angles(tables.sin, "sin", heads, layout.half, !positions.empty(), where);
    check(tables.cos.rank == tables.sin.rank && tables.cos.sizes == tables.sin.sizes, where,
          ": the tables are cos ", tables.cos, " and sin ", tables.sin, ", expected one shape");
    if (positions.empty()) return;
    const std::int64_t rows = tables.cos.size(0);
    for (std::int64_t b = 0; b < heads.size(0); ++b) {
        for (std::int64_t t = 0; t < heads.size(1); ++t) {
            const std::int64_t position = position_of({.given = positions}, b, t);
            check(position >= 0 && position < rows, where, ": token ", t, " of sequence ", b,
                  " stands at position ", position, ", but the tables have rows 0 .. ", rows - 1);
        }
    }
}

namespace {

void check_factors(const ConstTensorView& view, const char* name, std::int64_t heads, std::int64_t head_dim,
                   const char* where) {
    const bool by_column = view.rank == 1 && view.size(0) == head_dim;
    const bool by_head = view.rank == 2 && view.size(0) == heads && view.size(1) == head_dim;
    const bool by_row =
        view.rank == 1 && heads > 0 && view.size(0) / heads == head_dim && view.size(0) % heads == 0;
    check(is_float(view.dtype) && (by_column || by_head || by_row), where, ": the ", name, " of the norm is ",
          view, ", expected any float type and [", head_dim, "], [", heads, ", ", head_dim,
          "] or all of them in one row");
    check_memory(view, where, name);
}

}  // namespace

void check_norm(const HeadNorm& norm, const ConstTensorView& weight, const ConstTensorView& bias,
                std::int64_t heads, std::int64_t head_dim, const char* where) {
    check(norm.kind <= HeadNorm::Kind::layer_norm && norm.extent <= HeadNorm::Extent::row &&
              norm.weight <= HeadNorm::Weight::one_plus_w,
          where, ": the norm has a kind, extent or weight that HeadNorm does not name");
    check(std::isfinite(norm.eps) && norm.eps >= 0, where, ": the norm has eps ", norm.eps,
          ", expected a finite number of at least 0");
    if (norm.weight == HeadNorm::Weight::none) {
        check(weight.empty(), where, ": the norm has no weight, but ", weight, " was given");
    } else {
        check(!weight.empty(), where, ": the norm has a weight, but none was given; say HeadNorm::Weight::none");
        check_factors(weight, "weight", heads, head_dim, where);
    }
    if (!bias.empty()) check_factors(bias, "bias", heads, head_dim, where);
}

}  // namespace headwise
