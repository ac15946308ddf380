#include "weights/layout.h"

#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/dtype.h"

namespace headwise {
namespace {

using Runs = std::vector<Run>;

constexpr std::int64_t kCodegenBlocks = 4;

Piece piece_q(Runs rows) { return {&LayerWeights::q, &LayerWeights::q_bias, std::move(rows)}; }
Piece piece_k(Runs rows) { return {&LayerWeights::k, &LayerWeights::k_bias, std::move(rows)}; }
Piece piece_v(Runs rows) { return {&LayerWeights::v, &LayerWeights::v_bias, std::move(rows)}; }
Piece piece_o(Runs rows) { return {&LayerWeights::o, &LayerWeights::o_bias, std::move(rows)}; }

std::vector<Piece> by_kv_head(const MhaConfig& c) {
    const std::int64_t D = c.head_dim, q_rows = c.heads / c.kv_heads * D, step = q_rows + 2 * D;
    Runs q, k, v;
    for (std::int64_t g = 0; g < c.kv_heads; ++g) {
        q.push_back({g * step, q_rows});
        k.push_back({g * step + q_rows, D});
        v.push_back({g * step + q_rows + D, D});
    }
    return {piece_q(q), piece_k(k), piece_v(v)};
}

std::vector<Piece> four_blocks(const MhaConfig& c) {
    const std::int64_t part = c.heads * c.head_dim / kCodegenBlocks;
    Runs q, k, v;
    for (std::int64_t block = 0; block < kCodegenBlocks; ++block) {
        const std::int64_t first = block * 3 * part;
        q.push_back({first, part});
        v.push_back({first + part, part});
        k.push_back({first + 2 * part, part});
    }
    return {piece_q(q), piece_k(k), piece_v(v)};
}

std::vector<Piece> query_with_gate(const MhaConfig& c) {
    const std::int64_t D = c.head_dim;
    Runs q, gate;
    for (std::int64_t h = 0; h < c.heads; ++h) {
        q.push_back({2 * h * D, D});
        gate.push_back({(2 * h + 1) * D, D});
    }
    return {piece_q(q), {&LayerWeights::gate, &LayerWeights::gate_bias, gate}};
}

// kv head g reads value heads g mod G/2 and g mod G/2 + G/2 side by side.
Runs difference_values(const MhaConfig& c) {
    const std::int64_t D = c.head_dim, half = c.kv_heads / 2;
    Runs v;
    for (std::int64_t g = 0; g < c.kv_heads; ++g) {
        v.push_back({g % half * D, D});
        v.push_back({(g % half + half) * D, D});
    }
    return v;
}

std::vector<Piece> fused(const LayerPlan& plan) {
    const MhaConfig& c = plan.config;
    const std::int64_t q_rows = c.heads * c.head_dim, kv_rows = c.kv_heads * c.head_dim;
    switch (plan.layout) {
        case Layout::by_kv_head:
            return by_kv_head(c);
        case Layout::four_blocks_qvk:
            return four_blocks(c);
        case Layout::routed:
            return {piece_k({{0, kv_rows}}), piece_v({{kv_rows, kv_rows}})};
        default:
            return {piece_q({{0, q_rows}}), piece_k({{q_rows, kv_rows}}), piece_v({{q_rows + kv_rows, kv_rows}})};
    }
}

// Cache-friendly enough: blocks of kBlock x kBlock elements.
template <class T>
void transpose_into(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
    constexpr std::int64_t kBlock = 32;
    for (std::int64_t r0 = 0; r0 < rows; r0 += kBlock) {
        for (std::int64_t c0 = 0; c0 < columns; c0 += kBlock) {
            for (std::int64_t r = r0; r < std::min(r0 + kBlock, rows); ++r) {
                for (std::int64_t c = c0; c < std::min(c0 + kBlock, columns); ++c) {
                    to[c * rows + r] = from[r * columns + c];
                }
            }
        }
    }
}

}  // namespace

std::vector<Piece> pieces_of(const LayerPlan& plan, std::size_t index) {
    const PlannedMatrix& matrix = plan.matrices[index];
    const Names& names = plan.family->names;
    const Runs all = {{0, matrix.rows}};
    if (matrix.name == names.o) return {piece_o(all)};
    if (matrix.name == names.fused) return fused(plan);
    if (matrix.name == names.k) return {piece_k(all)};
    if (matrix.name == names.v) {
        return {piece_v(plan.layout == Layout::difference_values ? difference_values(plan.config) : all)};
    }
    return plan.layout == Layout::query_with_gate ? query_with_gate(plan.config)
                                                  : std::vector<Piece>{piece_q(all)};
}

Tensor gather_rows(const Tensor& stored, const std::vector<Run>& rows) {
    std::int64_t count = 0;
    for (const Run& run : rows) count += run.count;
    const std::vector<std::int64_t> sizes = stored.rank() == 1
                                                ? std::vector<std::int64_t>{count}
                                                : std::vector<std::int64_t>{count, stored.view().size(1)};
    Tensor result(stored.dtype(), sizes);
    const std::int64_t width = stored.rank() == 1 ? 1 : stored.view().size(1);
    const std::size_t row_bytes = static_cast<std::size_t>(width) * size_of(stored.dtype());
    const auto* from = static_cast<const std::byte*>(stored.view().data);
    auto* to = static_cast<std::byte*>(result.view().data);
    for (const Run& run : rows) {
        const std::size_t bytes = static_cast<std::size_t>(run.count) * row_bytes;
        if (bytes > 0) std::memcpy(to, from + static_cast<std::size_t>(run.first) * row_bytes, bytes);
        to += bytes;
    }
    return result;
}

Tensor transpose(const Tensor& matrix) {
    const std::int64_t rows = matrix.view().size(0), columns = matrix.view().size(1);
    Tensor result(matrix.dtype(), {columns, rows});
    if (size_of(matrix.dtype()) == 4) {
        transpose_into(static_cast<const std::uint32_t*>(matrix.view().data), rows, columns,
                       static_cast<std::uint32_t*>(result.view().data));
    } else {
        transpose_into(static_cast<const std::uint16_t*>(matrix.view().data), rows, columns,
                       static_cast<std::uint16_t*>(result.view().data));
    }
    return result;
}

Tensor alibi_slopes(std::int64_t heads, double scale, bool round_to_bf16) {
    std::int64_t power = 1;
    while (power * 2 <= heads) power *= 2;
    Tensor slopes(DType::f32, {heads});
    for (std::int64_t h = 0; h < heads; ++h) {
        const double exponent =
            h < power ? -8.0 * static_cast<double>(h + 1) / static_cast<double>(power)
                      : -8.0 * static_cast<double>(2 * (h - power) + 1) / static_cast<double>(2 * power);
        slopes.data<float>()[h] = static_cast<float>(std::exp2(exponent));
    }
    if (round_to_bf16) slopes = convert(convert(slopes, DType::bf16), DType::f32);
    for (std::int64_t h = 0; h < heads; ++h) {
        slopes.data<float>()[h] = static_cast<float>(static_cast<double>(slopes.data<float>()[h]) * scale);
    }
    return slopes;
}

}  // namespace headwise
