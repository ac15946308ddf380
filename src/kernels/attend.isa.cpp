// AttendKernels, see attend.h.
#include "kernels/attend.h"

#include "kernels/attend_softmax.h"
#include "kernels/attend_tile.h"
#include "kernels/storage.h"

namespace headwise::HEADWISE_ISA {
namespace {

int least(int64_t a, int b) { return a < b ? static_cast<int>(a) : b; }
int round_up(int n, int step) { return (n + step - 1) / step * step; }
int64_t bytes_of(Storage storage) { return storage == Storage::f32 ? 4 : 2; }

void load_query(float* to, const void* from, Storage storage, int64_t D, float scale) {
    const Vec factor = set1(scale);
    for (int64_t d = 0; d < D; d += kLanes) {
        const int n = least(D - d, kLanes);
        store_n(to + d, mul(factor, load_as_n(from, storage, d, n)), n);
    }
}

void store_output(void* to, Storage storage, const float* o, float sum, int64_t Dv) {
    const Vec divisor = set1(sum);
    for (int64_t c = 0; c < Dv; c += kLanes) {
        // + 0 makes a -0 positive: its sign would tell whether hidden keys were multiplied or left out.
        store_as_n(to, storage, c, add(div(load(o + c), divisor), zero()), least(Dv - c, kLanes));
    }
}

// ---- packing ------------------------------------------------------------------------------------------------

void pack_keys(float* to, const KeyRows& k, int keys, int64_t D) {
    for (int key = 0; key < keys; key += kLanes) {
        float* const half = to + key / kPanel * kPanel * D + key % kPanel;
        int64_t at[kLanes];  // keys beyond the last stand for it: nobody sees their scores
        for (int i = 0; i < kLanes; ++i) at[i] = least(key + i, keys - 1) * k.stride;
        for (int64_t d = 0; d < D; d += kLanes) {
            const int depth = least(D - d, kLanes);
            Vec square[kLanes];
            if (depth == kLanes) {
                for (int i = 0; i < kLanes; ++i) square[i] = load_as(k.data, k.storage, at[i] + d);
                transpose(square);
                for (int i = 0; i < kLanes; ++i) store(half + (d + i) * kPanel, square[i]);
            } else {
                for (int i = 0; i < kLanes; ++i) square[i] = load_as_n(k.data, k.storage, at[i] + d, depth);
                transpose(square);
                for (int i = 0; i < depth; ++i) store(half + (d + i) * kPanel, square[i]);
            }
        }
    }
}

bool pack_values(float* to, const KeyRows& v, int keys, int64_t Dv) {
    Vec probe = zero();  // 0 * value summed up: NaN as soon as one value is Inf or NaN
    for (int key = 0; key < keys; ++key) {
        for (int64_t c = 0; c < Dv; c += kLanes) {
            const int n = least(Dv - c, kLanes);
            const int64_t at = key * v.stride + c;
            const Vec value = n == kLanes ? load_as(v.data, v.storage, at) : load_as_n(v.data, v.storage, at, n);
            probe = fma(value, zero(), probe);
            store(to + c / kPanel * kPanel * keys + key * kPanel + c % kPanel, value);
        }
    }
    const float verdict = sum(probe);
    return verdict == verdict;
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

void softmax(const AttendTile& tile) {
    for (const Group& group : Groups(tile)) {
        const int from = group.begin / kStep * kStep, to = round_up(group.end, kStep);
        for (int row = group.row; row < group.row + group.rows; ++row) {
            const int begin = tile.begin[row], end = tile.end[row];
            if (from >= to) continue;
            if (begin == from && end == to && tile.visible == nullptr) {
                softmax_row(tile, row, from, to, ShowAll{});
            } else {
                const uint8_t* visible = tile.visible == nullptr ? nullptr : tile.visible + row * kKeyTile;
                softmax_row(tile, row, from, to, ShowSome{begin, begin < end ? end : begin, visible});
            }
        }
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
