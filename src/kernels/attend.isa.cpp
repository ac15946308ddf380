// AttendKernels, see attend.h.
#include "kernels/attend.h"

#include "kernels/attend_softmax.h"
#include "kernels/attend_tile.h"
#include "kernels/storage.h"
#include "kernels/tanh.h"

namespace headwise::HEADWISE_ISA {
namespace {

int least(int64_t a, int b) { return a < b ? static_cast<int>(a) : b; }
int round_up(int n, int step) { return (n + step - 1) / step * step; }
template <Storage kStorage>
struct OfStorage {
    constexpr Storage operator()() const { return kStorage; }
};
// body(OfStorage<storage>{}): one loop per storage type.
template <class Body>
HEADWISE_INLINE void with_storage(Storage storage, Body body) {
    if (storage == Storage::f32) return body(OfStorage<Storage::f32>{});
    storage == Storage::bf16 ? body(OfStorage<Storage::bf16>{}) : body(OfStorage<Storage::f16>{});
}

template <Storage kStorage>
void load_query_of(float* to, const void* from, int64_t D, float scale) {
    const Vec factor = set1(scale);
    int64_t d = 0;
    for (; d + kLanes <= D; d += kLanes) store(to + d, mul(factor, load_as(from, kStorage, d)));
    const int rest = static_cast<int>(D - d);
    if (rest > 0) store_n(to + d, mul(factor, load_as_n(from, kStorage, d, rest)), rest);
}

void load_query(float* to, const void* from, Storage storage, int64_t D, float scale) {
    with_storage(storage, [&](auto type) { load_query_of<type()>(to, from, D, scale); });
}

template <Storage kStorage>
void store_output_of(void* to, const float* o, float sum, const float* gate, int64_t Dv) {
    const Vec divisor = set1(sum);
    // + 0 makes a -0 positive: its sign would tell whether hidden keys were multiplied or left out.
    const auto result = [&](int64_t c) {
        const Vec mean = add(div(load(o + c), divisor), zero());
        return gate == nullptr ? mean : mul(mean, load(gate + c));
    };
    int64_t c = 0;
    for (; c + kLanes <= Dv; c += kLanes) store_as(to, kStorage, c, result(c));
    if (c < Dv) store_as_n(to, kStorage, c, result(c), static_cast<int>(Dv - c));
}

void store_output(void* to, Storage storage, const float* o, float sum, const float* gate, int64_t Dv) {
    with_storage(storage, [&](auto type) { store_output_of<type()>(to, o, sum, gate, Dv); });
}

// ---- packing ------------------------------------------------------------------------------------------------

// Keys [first, first + kWide) -> to [D][kWide], keys beyond the last standing for it: nobody sees their scores.
template <Storage kStorage, int kWide>
void turn_keys(float* to, const KeyRows& k, int first, int keys, int64_t D) {
    for (int part = 0; part < kWide; part += kLanes) {
        if (first + part >= keys) break;
        int64_t at[kLanes];
        for (int i = 0; i < kLanes; ++i) at[i] = least(first + part + i, keys - 1) * k.stride;
        Vec square[kLanes];
        int64_t d = 0;
        for (; d + kLanes <= D; d += kLanes) {
            for (int i = 0; i < kLanes; ++i) square[i] = load_as(k.data, kStorage, at[i] + d);
            transpose(square);
            for (int i = 0; i < kLanes; ++i) store(to + (d + i) * kWide + part, square[i]);
        }
        const int rest = static_cast<int>(D - d);
        if (rest == 0) continue;
        for (int i = 0; i < kLanes; ++i) square[i] = load_as_n(k.data, kStorage, at[i] + d, rest);
        transpose(square);
        for (int i = 0; i < rest; ++i) store(to + (d + i) * kWide + part, square[i]);
    }
}

void pack_keys(float* to, const KeyRows& k, int keys, int64_t D) {
    with_storage(k.storage, [&](auto type) {
        for (int key = 0; key < keys; key += kPanel) turn_keys<type(), kPanel>(to + key * D, k, key, keys, D);
    });
}

template <Storage kStorage>
bool pack_values_of(float* to, const KeyRows& v, int keys, int64_t Dv) {
    Vec probe = zero();  // 0 * value summed up: NaN as soon as one value is Inf or NaN
    for (int key = 0; key < keys; ++key) {
        const auto put = [&](int64_t c, Vec value) __attribute__((always_inline)) {
            probe = fma(value, zero(), probe);
            store(to + c / kPanel * kPanel * keys + key * kPanel + c % kPanel, value);
        };
        const int64_t row = key * v.stride;
        int64_t c = 0;
        for (; c + kLanes <= Dv; c += kLanes) put(c, load_as(v.data, kStorage, row + c));
        if (c < Dv) put(c, load_as_n(v.data, kStorage, row + c, static_cast<int>(Dv - c)));
    }
    const float verdict = sum(probe);
    return verdict == verdict;
}

bool pack_values(float* to, const KeyRows& v, int keys, int64_t Dv) {
    bool finite = true;
    with_storage(v.storage, [&](auto type) { finite = pack_values_of<type()>(to, v, keys, Dv); });
    return finite;
}

// ---- scores -------------------------------------------------------------------------------------------------

Product scores_of(const AttendTile& tile, const Group& group, const float* keys, int64_t stride, int key) {
    return {.a = tile.q + group.row * tile.q_stride,
            .a_stride = tile.q_stride,
            .b = keys,
            .b_stride = stride,
            .depth = tile.D,
            .c = tile.p + group.row * kKeyTile + key,
            .c_stride = kKeyTile,
            .add = false};
}

// A panel of keys stays in L1 while all rows pass over it.
void scores(const AttendTile& tile, const float* packed_keys) {
    const Groups groups(tile);
    for (int key = 0; key < tile.keys; key += kPanel) {
        for (const Group& group : groups) {
            if (key >= group.end || key + kPanel <= group.begin) continue;
            multiply_columns(scores_of(tile, group, packed_keys + key * tile.D, kPanel, key), group.rows,
                             least(tile.keys - key, kPanel));
        }
    }
}

void scores_in_place(const AttendTile& tile, const KeyRows& k) {
    constexpr int kTurned = kTurnedVecs * kLanes;
    const Groups groups(tile);
    for (int key = 0; key < tile.keys; key += kTurned) {
        bool turned = false;
        for (const Group& group : groups) {
            if (key >= group.end || key + kTurned <= group.begin) continue;
            if (!turned) {
                with_storage(k.storage, [&](auto type) {
                    turn_keys<type(), kTurned>(tile.scratch, k, key, tile.keys, tile.D);
                });
                turned = true;
            }
            multiply_columns(scores_of(tile, group, tile.scratch, kTurned, key), group.rows,
                             least(tile.keys - key, kTurned));
        }
    }
}

void cap_scores(const AttendTile& tile, float cap) {
    for (int row = 0; row < tile.rows; ++row) {
        const int end = tile.begin[row] < tile.end[row] ? round_up(tile.end[row], kStep) : 0;
        float* const p = tile.p + row * kKeyTile;
        for (int key = tile.begin[row] / kStep * kStep; key < end; key += kStep) {
            Vec s[kSums];
            unroll<kSums>([&](auto i) __attribute__((always_inline)) { s[i] = load(p + key + i * kLanes); });
            soft_cap(s, cap);
            unroll<kSums>([&](auto i) __attribute__((always_inline)) { store(p + key + i * kLanes, s[i]); });
        }
    }
}

// ---- softmax ------------------------------------------------------------------------------------------------

// What softmax() must know of a row between its two passes over the scores.
struct SoftmaxRow {
    int row, from, to;  // keys [from, to), whole steps, cover what the row's group sees
    bool all;           // and the row sees all of them
    float reference;
};

ShowSome shown_of(const AttendTile& tile, int row) {
    const int begin = tile.begin[row], end = tile.end[row];
    return {begin, begin < end ? end : begin, tile.visible == nullptr ? nullptr : tile.visible + row * kKeyTile};
}

// Rows that see something of the tile, or whose group does; with their maximum, and all else moved to it.
int find_references(const AttendTile& tile, SoftmaxRow* rows) {
    int count = 0;
    for (const Group& group : Groups(tile)) {
        const int from = group.begin / kStep * kStep, to = round_up(group.end, kStep);
        for (int row = group.row; from < to && row < group.row + group.rows; ++row) {
            const bool all = tile.begin[row] == from && tile.end[row] == to && tile.visible == nullptr;
            const float* bias = tile.bias == nullptr ? nullptr : tile.bias + row * kKeyTile;
            float* const p = tile.p + row * kKeyTile;
            const float largest = all ? largest_score(p, bias, from, to, ShowAll{})
                                      : largest_score(p, bias, from, to, shown_of(tile, row));
            const float before = tile.max[row];
            if (largest > before) {
                tile.max[row] = largest;
                rescale_row(tile, row, before - largest);
            }
            // With nothing but -inf so far the reference is 0: the weights are 0, or NaN where a score is.
            const float now = tile.max[row];
            rows[count++] = {row, from, to, all, now == -kInfinity ? 0.0f : now};
        }
    }
    return count;
}

// All maxima first: a row alone would wait for its maximum before it can weigh a single key.
void softmax(const AttendTile& tile) {
    SoftmaxRow rows[kTileQueries];
    const int count = find_references(tile, rows);
    for (int i = 0; i < count; ++i) {
        const SoftmaxRow& at = rows[i];
        float* const p = tile.p + at.row * kKeyTile;
        tile.sum[at.row] += at.all ? weigh(p, at.reference, at.from, at.to, ShowAll{})
                                   : weigh(p, at.reference, at.from, at.to, shown_of(tile, at.row));
    }
}

// ---- values -------------------------------------------------------------------------------------------------

// Values of keys [from, to) of the tile, some columns of them, in whole vectors.
struct Values {
    const float* data;  // of key `from`
    int64_t stride;     // from key to key
    int from, to;
    int64_t column, columns;
};

bool all_finite(const Values& values) {
    Vec probe = zero();
    for (int key = 0; key < values.to - values.from; ++key) {
        for (int64_t c = 0; c < values.columns; c += kLanes) {
            probe = fma(load(values.data + key * values.stride + c), zero(), probe);
        }
    }
    const float verdict = sum(probe);
    return verdict == verdict;
}

// All keys that the group sees, at once: what is hidden from a row has the weight -0 there.
void add_values(const AttendTile& tile, const Group& group, const Values& values) {
    const int begin = group.begin > values.from ? group.begin : values.from;
    const int end = group.end < values.to ? group.end : values.to;
    if (begin >= end) return;
    multiply_columns({.a = tile.p + group.row * kKeyTile + begin,
                      .a_stride = kKeyTile,
                      .b = values.data + (begin - values.from) * values.stride,
                      .b_stride = values.stride,
                      .depth = end - begin,
                      .c = tile.o + group.row * tile.o_stride + values.column,
                      .c_stride = tile.o_stride,
                      .add = true},
                     group.rows, values.columns);
}

// Row by row without the hidden keys, because 0 * NaN is not 0.
void add_visible_values(const AttendTile& tile, const Group& group, const Values& values) {
    for (int row = group.row; row < group.row + group.rows; ++row) {
        const int begin = tile.begin[row] > values.from ? tile.begin[row] : values.from;
        const int end = tile.end[row] < values.to ? tile.end[row] : values.to;
        float* const o = tile.o + row * tile.o_stride + values.column;
        for (int key = begin; key < end; ++key) {
            const float* const p = tile.p + row * kKeyTile + key;
            uint32_t bits;
            memcpy(&bits, p, sizeof bits);
            if (bits == 0x80000000u) continue;
            const float* const v = values.data + (key - values.from) * values.stride;
            for (int64_t c = 0; c < values.columns; c += kLanes) {
                store(o + c, fma(set1(*p), load(v + c), load(o + c)));
            }
        }
    }
}

void values(const AttendTile& tile, const float* packed_values, bool finite) {
    const Groups groups(tile);
    for (int64_t c = 0; c < tile.Dv; c += kPanel) {
        const Values panel = {packed_values + c * tile.keys, kPanel, 0, tile.keys, c, least(tile.Dv - c, kPanel)};
        for (const Group& group : groups) {
            finite ? add_values(tile, group, panel) : add_visible_values(tile, group, panel);
        }
    }
}

// Does every row of the group see every key of `values` that one of them sees?
bool sees_alike(const AttendTile& tile, const Group& group, const Values& values) {
    const int begin = group.begin > values.from ? group.begin : values.from;
    const int end = group.end < values.to ? group.end : values.to;
    bool alike = tile.visible == nullptr;
    for (int row = group.row; row < group.row + group.rows; ++row) {
        alike = alike && tile.begin[row] <= begin && tile.end[row] >= end;
    }
    return alike;
}

void add_values_in_place(const AttendTile& tile, const Groups& groups, const Values& values) {
    bool known = false, finite = true;
    for (const Group& group : groups) {
        if (group.begin >= group.end) continue;
        const bool alike = sees_alike(tile, group, values);
        if (!alike && !known) {
            finite = all_finite(values);
            known = true;
        }
        alike || finite ? add_values(tile, group, values) : add_visible_values(tile, group, values);
    }
}

// f32 rows of whole vectors are used as they lie, all others by way of scratch.
void values_in_place(const AttendTile& tile, const KeyRows& v) {
    const Groups groups(tile);
    int begin = tile.keys, end = 0;
    for (const Group& group : groups) {
        begin = group.begin < begin ? group.begin : begin;
        end = group.end > end ? group.end : end;
    }
    if (v.storage == Storage::f32 && tile.Dv % kLanes == 0) {
        if (begin >= end) return;
        const float* const data = static_cast<const float*>(v.data) + begin * v.stride;
        return add_values_in_place(tile, groups, {data, v.stride, begin, end, 0, tile.Dv});
    }
    const int64_t stride = (tile.Dv + kLanes - 1) / kLanes * kLanes;
    for (int from = begin; from < end; from += kWidenedKeys) {
        const int to = least(end, from + kWidenedKeys);
        with_storage(v.storage, [&](auto type) {
            for (int key = from; key < to; ++key) {
                for (int64_t c = 0; c < tile.Dv; c += kLanes) {
                    const int n = least(tile.Dv - c, kLanes);
                    const Vec value = n == kLanes ? load_as(v.data, type(), key * v.stride + c)
                                                  : load_as_n(v.data, type(), key * v.stride + c, n);
                    store(tile.scratch + (key - from) * stride + c, value);
                }
            }
        });
        add_values_in_place(tile, groups, {tile.scratch, stride, from, to, 0, tile.Dv});
    }
}

}  // namespace

extern const AttendKernels kAttendKernels;
const AttendKernels kAttendKernels = {load_query,      store_output, pack_keys, pack_values, scores,
                                      scores_in_place, cap_scores,   softmax,   values,      values_in_place};

}  // namespace headwise::HEADWISE_ISA
