// Kernels of stage 3: a few query rows against one tile of keys. src/attend/ walks the tiles.
//
// A row's bits depend on its own q, and on the keys that it sees, their values and their indices alone: every score is
// one chain of fma over d, every output lane one chain of fma over the keys in order, and tiles start at multiples of
// kKeyTile. So all kernels of one ISA agree, whether keys are packed or read in place, and whatever rows they are
// computed with.
#pragma once

#include <stdint.h>

#include "kernels/rows.h"

namespace headwise {

inline constexpr int kKeyTile = 128;     // keys of a tile; scores of one row lie kKeyTile floats apart
inline constexpr int kTileQueries = 48;  // query rows of one call, at most

// The state of `rows` query rows, and what they see of the tile at hand.
struct AttendTile {
    int rows;  // <= kTileQueries
    int keys;  // <= kKeyTile
    int64_t D, Dv;
    const float* q;  // [rows][q_stride]: D floats each, scale included
    int64_t q_stride;
    const int32_t* begin;  // [rows]: the row sees keys begin <= key < end of this tile; begin = end: none
    const int32_t* end;
    const uint8_t* visible;  // null, or [rows][kKeyTile]: 0 hides a key of that range
    const float* bias;       // null, or [rows][kKeyTile]: added to the scores
    float* p;                // [rows][kKeyTile]: scores, then weights; -0.0 marks a hidden key
    float* max;              // [rows] largest score so far, -inf before there is one
    float* sum;              // [rows] sum of exp(score - max) so far
    float* o;  // [rows][o_stride] sum of exp(score - max) * v so far: Dv floats, room for whole vectors
    int64_t o_stride;
    float* scratch;  // for the kernels in place: in_place_scratch() floats
};

inline constexpr int kTurnedVecs = 4;  // vectors of keys that are turned at a time where keys are read in place
inline constexpr int kWidenedKeys =
    32;  // values that are widened at a time where they are not whole vectors of f32

inline int64_t in_place_scratch(int lanes, int64_t D, int64_t Dv) {
    const int64_t turned = kTurnedVecs * lanes * D, widened = kWidenedKeys * ((Dv + lanes - 1) / lanes * lanes);
    return turned > widened ? turned : widened;
}

// Rows of keys or values where they lie.
struct KeyRows {
    const void* data;  // row of the tile's first key
    int64_t stride;    // elements from one key to the next
    Storage storage;
};

// The order of a tile: scores, cap_scores where there is a cap, softmax, values. Rows that see nothing of the tile are left alone.
struct AttendKernels {
    // to[i] = scale * from[i] for i < D.
    void (*load_query)(float* to, const void* from, Storage storage, int64_t D, float scale);
    // to[i] = o[i] / sum * gate[i] for i < Dv; a sum of 0 gives NaN. `gate` may be null; else room for whole vectors.
    void (*store_output)(void* to, Storage storage, const float* o, float sum, const float* gate, int64_t Dv);

    // One tile of keys -> [ceil(keys / panel)][D][panel], missing keys 0; panel = 2 * lanes.
    void (*pack_keys)(float* to, const KeyRows& k, int keys, int64_t D);
    // One tile of values -> [ceil(Dv / panel)][keys][panel], missing columns 0. False if some value is Inf or NaN.
    bool (*pack_values)(float* to, const KeyRows& v, int keys, int64_t Dv);

    // p[row][key] = <q[row], k[key]> where the row sees the key; anything elsewhere.
    void (*scores)(const AttendTile& tile, const float* packed_keys);
    void (*scores_in_place)(const AttendTile& tile, const KeyRows& k);

    // p = cap * tanh(p / cap), cap > 0, where the row sees the key.
    void (*cap_scores)(const AttendTile& tile, float cap);
    // p = exp(p + bias - max) with the maximum of everything seen so far; sum and o follow when the maximum rises.
    void (*softmax)(const AttendTile& tile);

    // o[row] += sum over keys of p[row][key] * v[key]. Hidden values are never multiplied unless all are finite.
    void (*values)(const AttendTile& tile, const float* packed_values, bool finite);
    void (*values_in_place)(const AttendTile& tile, const KeyRows& v);
};

}  // namespace headwise
