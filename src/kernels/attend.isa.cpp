// AttendKernels, see attend.h.
#include "kernels/attend.h"

#include "kernels/attend_softmax.h"
#include "kernels/attend_tile.h"
#include "kernels/storage.h"

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
int64_t bytes_of(Storage storage) { return storage == Storage::f32 ? 4 : 2; }

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
void store_output_of(void* to, const float* o, float sum, int64_t Dv) {
    const Vec divisor = set1(sum);
    // + 0 makes a -0 positive: its sign would tell whether hidden keys were multiplied or left out.
    const auto result = [&](int64_t c) { return add(div(load(o + c), divisor), zero()); };
    int64_t c = 0;
    for (; c + kLanes <= Dv; c += kLanes) store_as(to, kStorage, c, result(c));
    if (c < Dv) store_as_n(to, kStorage, c, result(c), static_cast<int>(Dv - c));
}

void store_output(void* to, Storage storage, const float* o, float sum, int64_t Dv) {
    with_storage(storage, [&](auto type) { store_output_of<type()>(to, o, sum, Dv); });
}

// ---- packing ------------------------------------------------------------------------------------------------

template <Storage kStorage>
void pack_keys_of(float* to, const KeyRows& k, int keys, int64_t D) {
    for (int key = 0; key < keys; key += kLanes) {
        float* const half = to + key / kPanel * kPanel * D + key % kPanel;
        int64_t at[kLanes];  // keys beyond the last stand for it: nobody sees their scores
        for (int i = 0; i < kLanes; ++i) at[i] = least(key + i, keys - 1) * k.stride;
        Vec square[kLanes];
        int64_t d = 0;
        for (; d + kLanes <= D; d += kLanes) {
            for (int i = 0; i < kLanes; ++i) square[i] = load_as(k.data, kStorage, at[i] + d);
            transpose(square);
            for (int i = 0; i < kLanes; ++i) store(half + (d + i) * kPanel, square[i]);
        }
        const int rest = static_cast<int>(D - d);
        if (rest == 0) continue;
        for (int i = 0; i < kLanes; ++i) square[i] = load_as_n(k.data, kStorage, at[i] + d, rest);
        transpose(square);
        for (int i = 0; i < rest; ++i) store(half + (d + i) * kPanel, square[i]);
    }
}

void pack_keys(float* to, const KeyRows& k, int keys, int64_t D) {
    with_storage(k.storage, [&](auto type) { pack_keys_of<type()>(to, k, keys, D); });
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

// A panel of keys stays in L1 while all rows pass over it.
void scores(const AttendTile& tile, const float* packed_keys) {
    const Groups groups(tile);
    for (int key = 0; key < tile.keys; key += kPanel) {
        const int vecs = tile.keys - key > kLanes ? 2 : 1;
        for (const Group& group : groups) {
            if (key >= group.end || key + kPanel <= group.begin) continue;
            kScorePanel[vecs - 1](group.rows)(tile, group.row, packed_keys + key * tile.D, key);
        }
    }
}

void scores_in_place(const AttendTile& tile, const KeyRows& k) {
    const int storage = static_cast<int>(k.storage);
    for (const Group& group : Groups(tile)) {
        const int step = score_vecs(group.rows) * kLanes;
        for (int key = group.begin / step * step; key < group.end; key += step) {
            kScoreInPlace[storage](group.rows)(tile, group.row, k, key);
        }
    }
}

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

ValueStrip strip_of(const AttendTile& tile, int row, int begin, int end, const void* values, int64_t stride) {
    return {tile.p + row * kKeyTile + begin, values,       stride, end - begin,
            tile.o + row * tile.o_stride,    tile.o_stride};
}

void values(const AttendTile& tile, const float* packed_values, bool finite) {
    const Groups groups(tile);
    for (int64_t c = 0; c < tile.Dv; c += kPanel) {
        const float* const panel = packed_values + c * tile.keys;
        const int columns = least(tile.Dv - c, kPanel), vecs = columns > kLanes ? 2 : 1;
        for (const Group& group : groups) {
            if (finite && group.begin < group.end) {
                ValueStrip strip =
                    strip_of(tile, group.row, group.begin, group.end, panel + group.begin * kPanel, kPanel);
                strip.o += c;
                kPackedValues[vecs - 1](group.rows)(strip, kLanes);
            }
            for (int row = group.row; !finite && row < group.row + group.rows; ++row) {
                const int begin = tile.begin[row];
                ValueStrip strip = strip_of(tile, row, begin, tile.end[row], panel + begin * kPanel, kPanel);
                strip.o += c;
                kSkippingColumns[0](strip, columns);
            }
        }
    }
}

// Do all rows of the group see the same keys, one by one?
bool sees_alike(const AttendTile& tile, const Group& group) {
    bool alike = tile.visible == nullptr;
    for (int row = group.row; row < group.row + group.rows; ++row) {
        alike = alike && tile.begin[row] == group.begin && tile.end[row] == group.end;
    }
    return alike;
}

void values_in_place(const AttendTile& tile, const KeyRows& v) {
    const int storage = static_cast<int>(v.storage);
    const auto at = [&](int key) {
        return static_cast<const char*>(v.data) + key * v.stride * bytes_of(v.storage);
    };
    for (const Group& group : Groups(tile)) {
        if (sees_alike(tile, group)) {
            kColumnsInPlace[storage](group.rows)(
                strip_of(tile, group.row, group.begin, group.end, at(group.begin), v.stride), tile.Dv);
            continue;
        }
        for (int row = group.row; row < group.row + group.rows; ++row) {
            const int begin = tile.begin[row], end = tile.end[row];
            if (begin >= end) continue;
            const ValueStrip strip = strip_of(tile, row, begin, end, at(begin), v.stride);
            const AddColumns add =
                tile.visible == nullptr ? kColumnsInPlace[storage](1) : kSkippingColumns[storage];
            add(strip, tile.Dv);
        }
    }
}

}  // namespace

extern const AttendKernels kAttendKernels;
const AttendKernels kAttendKernels = {load_query,      store_output, pack_keys, pack_values,    scores,
                                      scores_in_place, softmax,      values,    values_in_place};

}  // namespace headwise::HEADWISE_ISA
