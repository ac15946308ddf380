// The two products of attention over one tile of keys, as register tiles: a few query rows (one broadcast each) times
// one or more vectors of keys or of value columns. Only for attend.isa.cpp.
#pragma once

#include "kernels/attend.h"
#include "kernels/storage.h"
#include "kernels/unroll.h"

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kPanel = 2 * kLanes;

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

// sums[r][c] += a[r][k] * b(k, c) for k in order: every sum is one chain.
template <int kRows, int kVecs, class LoadB>
HEADWISE_INLINE void multiply(Vec (&sums)[kRows * kVecs], const float* a, int64_t a_stride, int64_t count,
                              LoadB b) {
    const float* rows[kRows];
    unroll<kRows>([&](auto r) __attribute__((always_inline)) { rows[r] = a + r * a_stride; });
    for (int64_t k = 0; k < count; ++k) {
        Vec right[kVecs];
        unroll<kVecs>([&](auto c) __attribute__((always_inline)) {
            right[c] = b(k, c);
            if constexpr (kRows > 1) pin(right[c]);
        });
        unroll<kRows>([&](auto r) __attribute__((always_inline)) {
            const Vec left = set1(rows[r][k]);
            unroll<kVecs>([&](auto c) __attribute__((always_inline)) {
                sums[r * kVecs + c] = fma(left, right[c], sums[r * kVecs + c]);
            });
        });
    }
}

// ---- scores -------------------------------------------------------------------------------------------------

// kRows rows from `row` on, times kVecs vectors of a packed panel whose first key is `key`.
template <int kRows, int kVecs>
void score_panel(const AttendTile& tile, int row, const float* panel, int key) {
    Vec sums[kRows * kVecs];
    unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) { sums[i] = zero(); });
    multiply<kRows, kVecs>(
        sums, tile.q + row * tile.q_stride, tile.q_stride,
        tile.D, [&](int64_t d, int c) __attribute__((always_inline)) {
            return load(panel + d * kPanel + c * kLanes);
        });
    float* to = tile.p + row * kKeyTile + key;
    unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) {
        store(to + i / kVecs * kKeyTile + i % kVecs * kLanes, sums[i]);
    });
}

// Vectors of keys beside kRows rows of queries in place: with few rows one vector would wait for its own chain of sums.
constexpr int score_vecs(int rows) { return rows == 1 ? 4 : rows <= 3 ? 2 : 1; }

// kRows rows from `row` on, times score_vecs(kRows) vectors of keys in place, turned in registers so that lanes are keys.
template <int kRows, Storage kStorage>
void score_in_place(const AttendTile& tile, int row, const KeyRows& k, int key) {
    constexpr int kVecs = score_vecs(kRows), kKeys = kVecs * kLanes;
    int64_t at[kKeys];  // keys beyond the last stand for it: nobody sees their scores
    for (int i = 0; i < kKeys; ++i) at[i] = (key + i < tile.keys ? key + i : tile.keys - 1) * k.stride;
    Vec sums[kRows * kVecs];
    unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) { sums[i] = zero(); });
    const float* q = tile.q + row * tile.q_stride;
    for (int64_t d = 0; d < tile.D; d += kLanes) {
        const int depth = static_cast<int>(tile.D - d < kLanes ? tile.D - d : kLanes);
        alignas(64) float turned[kLanes * kKeys];  // [d][key]
        for (int c = 0; c < kKeys; c += kLanes) {
            Vec square[kLanes];
            if (depth == kLanes) {
                for (int i = 0; i < kLanes; ++i) square[i] = load_as(k.data, kStorage, at[c + i] + d);
            } else {
                for (int i = 0; i < kLanes; ++i) square[i] = load_as_n(k.data, kStorage, at[c + i] + d, depth);
            }
            transpose(square);
            for (int i = 0; i < kLanes; ++i) store(turned + i * kKeys + c, square[i]);
        }
        multiply<kRows, kVecs>(
            sums, q + d, tile.q_stride, depth, [&](int64_t i, int c) __attribute__((always_inline)) {
                return load(turned + i * kKeys + c * kLanes);
            });
    }
    float* to = tile.p + row * kKeyTile + key;
    const int vecs = (tile.keys - key + kLanes - 1) / kLanes;
    unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) {
        if (i % kVecs < vecs) store(to + i / kVecs * kKeyTile + i % kVecs * kLanes, sums[i]);
    });
}

// ---- values -------------------------------------------------------------------------------------------------

// Some rows, some keys, and the value columns `from` points at.
struct ValueStrip {
    const float* p;    // [rows][kKeyTile], at the first key
    const void* from;  // value of the first key, first column
    int64_t stride;    // elements from one key to the next
    int keys;
    float* o;  // [rows][o_stride], at the first column
    int64_t o_stride;
};

// kVecs vectors of columns; a `width` below kLanes (with kVecs = 1) keeps off the columns beyond it. kSkip (with one
// row) leaves hidden keys unread, because 0 * NaN is not 0.
template <int kRows, int kVecs, Storage kStorage, bool kSkip>
void add_values(const ValueStrip& strip, int width) {
    Vec sums[kRows * kVecs];
    float* const o = strip.o;
    const auto in_o = [&](int i) __attribute__((always_inline)) {
        return o + i / kVecs * strip.o_stride + i % kVecs * kLanes;
    };
    unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) { sums[i] = load(in_o(i)); });
    const auto value = [&](int64_t k, int c) __attribute__((always_inline)) {
        return load_as(strip.from, kStorage, k * strip.stride + c * kLanes);
    };
    const auto end_of_row = [&](int64_t k, int) __attribute__((always_inline)) {
        return load_as_n(strip.from, kStorage, k * strip.stride, width);
    };
    if constexpr (kSkip) {
        for (int64_t k = 0; k < strip.keys; ++k) {
            uint32_t bits;
            memcpy(&bits, strip.p + k, sizeof bits);
            if (bits == 0x80000000u) continue;
            if (width == kLanes) {
                multiply<kRows, kVecs>(sums, strip.p + k, 0, 1, [&](int64_t, int c) { return value(k, c); });
            } else {
                multiply<kRows, kVecs>(sums, strip.p + k, 0, 1, [&](int64_t, int c) { return end_of_row(k, c); });
            }
        }
    } else if (kVecs > 1 || width == kLanes) {
        multiply<kRows, kVecs>(sums, strip.p, kKeyTile, strip.keys, value);
    } else {
        multiply<kRows, kVecs>(sums, strip.p, kKeyTile, strip.keys, end_of_row);
    }
    unroll<kRows * kVecs>([&](auto i) __attribute__((always_inline)) { store(in_o(i), sums[i]); });
}

// Columns [0, columns) in strips of kVecs vectors, the rest in narrower ones.
template <int kRows, int kVecs, Storage kStorage, bool kSkip>
void add_value_columns(ValueStrip strip, int64_t columns) {
    constexpr int64_t kWidth = kVecs * kLanes;
    const char* from = static_cast<const char*>(strip.from);
    for (; columns >= kWidth; columns -= kWidth) {
        strip.from = from;
        add_values<kRows, kVecs, kStorage, kSkip>(strip, kLanes);
        from += kWidth * (kStorage == Storage::f32 ? 4 : 2);
        strip.o += kWidth;
    }
    strip.from = from;
    if (columns <= 0) return;
    if constexpr (kVecs > 1) {
        add_value_columns<kRows, kVecs / 2, kStorage, kSkip>(strip, columns);
    } else {
        add_values<kRows, 1, kStorage, kSkip>(strip, static_cast<int>(columns));
    }
}

// Vectors of columns beside kRows rows: enough sums to hide the latency of fma, few enough for the registers.
constexpr int value_vecs(int rows) {
    int vecs = 8;
    while (vecs > 2 && rows * vecs > 2 * kTileRows) vecs /= 2;
    return vecs;
}

// ---- tables over the number of rows ---------------------------------------------------------------------------

using ScorePanel = void (*)(const AttendTile&, int row, const float* panel, int key);
using ScoreInPlace = void (*)(const AttendTile&, int row, const KeyRows& k, int key);
using AddValues = void (*)(const ValueStrip&, int width);
using AddColumns = void (*)(ValueStrip, int64_t columns);

template <class Function>
struct PerRows {
    Function of[kTileRows];
    Function operator()(int rows) const { return of[rows - 1]; }
};
using TileRows = MakeIndices<kTileRows>::Type;

template <int kVecs, int... I>
constexpr PerRows<ScorePanel> score_panels(Indices<I...>) {
    return {{score_panel<I + 1, kVecs>...}};
}
template <int kVecs, int... I>
constexpr PerRows<AddValues> packed_values(Indices<I...>) {
    return {{add_values<I + 1, kVecs, Storage::f32, false>...}};
}
template <Storage kStorage, int... I>
constexpr PerRows<ScoreInPlace> scores_of(Indices<I...>) {
    return {{score_in_place<I + 1, kStorage>...}};
}
template <Storage kStorage, int... I>
constexpr PerRows<AddColumns> columns_of(Indices<I...>) {
    return {{add_value_columns<I + 1, value_vecs(I + 1), kStorage, false>...}};
}

constexpr PerRows<ScorePanel> kScorePanel[2] = {score_panels<1>(TileRows{}), score_panels<2>(TileRows{})};
constexpr PerRows<AddValues> kPackedValues[2] = {packed_values<1>(TileRows{}), packed_values<2>(TileRows{})};
constexpr PerRows<ScoreInPlace> kScoreInPlace[3] = {scores_of<Storage::f32>(TileRows{}),
                                                    scores_of<Storage::bf16>(TileRows{}),
                                                    scores_of<Storage::f16>(TileRows{})};
constexpr PerRows<AddColumns> kColumnsInPlace[3] = {columns_of<Storage::f32>(TileRows{}),
                                                    columns_of<Storage::bf16>(TileRows{}),
                                                    columns_of<Storage::f16>(TileRows{})};
constexpr AddColumns kSkippingColumns[3] = {add_value_columns<1, value_vecs(1), Storage::f32, true>,
                                            add_value_columns<1, value_vecs(1), Storage::bf16, true>,
                                            add_value_columns<1, value_vecs(1), Storage::f16, true>};

}  // namespace
}  // namespace headwise::HEADWISE_ISA
