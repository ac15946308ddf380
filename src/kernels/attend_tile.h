// The register tile of attention: both of its products, scores = q k and o += p v, are this one. Only for
// attend.isa.cpp.
#pragma once

#include "kernels/attend.h"
#include "kernels/unroll.h"
#include "kernels/vec.h"

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kPanel = 2 * kLanes;

// c[r][j] (+)= sum over k of a[r][k] * b[k][j]: a few rows, a few vectors of columns j. Strides in floats.
struct Product {
    const float* a;
    int64_t a_stride;
    const float* b;
    int64_t b_stride;
    int64_t depth;
    float* c;
    int64_t c_stride;
    bool add;  // to c; else from 0
};

// Every element is one chain of fma over k in order, whatever kRows and kVecs are.
template <int kRows, int kVecs>
void multiply(const Product& product) {
    Vec sums[kRows * kVecs];
    float* const c = product.c;
    const int64_t c_stride = product.c_stride;
    const auto at = [&](int i) __attribute__((always_inline)) {
        return c + i / kVecs * c_stride + i % kVecs * kLanes;
    };
    if (product.add) {
        unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) { sums[i] = load(at(i)); });
    } else {
        unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) { sums[i] = zero(); });
    }
    const float* rows[kRows];
    unroll<kRows>([&](auto r) __attribute__((always_inline)) { rows[r] = product.a + r * product.a_stride; });
    const float* b = product.b;
    const int64_t b_stride = product.b_stride, depth = product.depth;
    for (int64_t k = 0; k < depth; ++k, b += b_stride) {
        Vec right[kVecs];
        unroll<kVecs>([&](auto v) __attribute__((always_inline)) {
            right[v] = load(b + v * kLanes);
            if constexpr (kRows > 1) pin(right[v]);
        });
        unroll<kRows>([&](auto r) __attribute__((always_inline)) {
            const Vec left = set1(rows[r][k]);
            unroll<kVecs>([&](auto v) __attribute__((always_inline)) {
                Vec& sum = sums[r * kVecs + v];
                sum = fma(left, right[v], sum);
            });
        });
    }
    unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) { store(at(i), sums[i]); });
}

// ---- the tiles there are ------------------------------------------------------------------------------------

// With few rows a tile is made wider: 8 sums at least hide the latency of fma, 2 * kTileRows fit in the registers.
constexpr int widest(int rows) {
    int vecs = 8;
    while (vecs > 2 && rows * vecs > 2 * kTileRows) vecs /= 2;
    return vecs;
}

using Multiply = void (*)(const Product&);

template <int kRows, int kVecs>
constexpr Multiply multiply_or_null() {
    if constexpr (kVecs <= widest(kRows)) {
        return multiply<kRows, kVecs>;
    } else {
        return nullptr;
    }
}

struct MultiplyTable {
    Multiply of[4][kTileRows];  // 1, 2, 4 or 8 vectors; 1 .. kTileRows rows
};
template <int... I>
constexpr MultiplyTable make_multiply_table(Indices<I...>) {
    return {{{multiply_or_null<I + 1, 1>()...},
             {multiply_or_null<I + 1, 2>()...},
             {multiply_or_null<I + 1, 4>()...},
             {multiply_or_null<I + 1, 8>()...}}};
}
constexpr MultiplyTable kMultiply = make_multiply_table(MakeIndices<kTileRows>::Type{});

// `columns` columns in tiles as wide as may be. The last vector is computed whole: b and c have room for it.
void multiply_columns(Product product, int rows, int64_t columns) {
    int log2 = 3;
    for (int64_t vecs = (columns + kLanes - 1) / kLanes; vecs > 0;) {
        while (1 << log2 > widest(rows) || 1 << log2 > vecs) --log2;
        kMultiply.of[log2][rows - 1](product);
        const int64_t done = int64_t{1} << log2;
        product.b += done * kLanes, product.c += done * kLanes, vecs -= done;
    }
}

// ---- rows ---------------------------------------------------------------------------------------------------

// Rows that one register tile takes, and the keys that at least one of them sees.
struct Group {
    int row, rows;
    int begin, end;
};

// Splits the rows of a call evenly, so that no register tile of 1 to 3 rows stands beside full ones.
class Groups {
public:
    explicit Groups(const AttendTile& tile) : count((tile.rows + kTileRows - 1) / kTileRows) {
        for (int i = 0, row = 0; i < count; ++i) {
            Group& group = groups[i];
            group = {row, (tile.rows - row) / (count - i), kKeyTile, 0};
            for (const int stop = row + group.rows; row < stop; ++row) {
                if (tile.begin[row] >= tile.end[row]) continue;
                group.begin = tile.begin[row] < group.begin ? tile.begin[row] : group.begin;
                group.end = tile.end[row] > group.end ? tile.end[row] : group.end;
            }
        }
    }
    const Group* begin() const { return groups; }
    const Group* end() const { return groups + count; }

private:
    int count;
    Group groups[(kTileQueries + kTileRows - 1) / kTileRows];
};

}  // namespace
}  // namespace headwise::HEADWISE_ISA
