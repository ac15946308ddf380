// What a call needs of a cache.
#pragma once

#include "attend/attend.h"
#include "mha/call.h"

namespace headwise {

// Throws invalid_argument where the cache is not one of this layer, cache_full where the new keys do not fit.
void check_cache(const MhaConfig& config, const Call& call);

// The longest length after the append.
std::int64_t keys_after(const Call& call);

// Position of query row 0 of sequence b by the cache: new tokens follow what was there; queries with a source of keys of
// their own, and those that only read, end at the last key.
std::int64_t cache_offset(const Call& call, std::int64_t b);

struct NewKeys {
    ConstTensorView k{}, v{};      // [B,N,G,...] as append() takes them: no v where it lies inside the key
    ConstTensorView attended_v{};  // as attend() takes it
};

// Appends new keys and attends. A ring that has no room for all of them beside what the rows still see takes them piece
// by piece.
void append_and_attend(const Block& block, const Call& call, AttendInputs inputs, const AttendOutputs& outputs,
                       const NewKeys& keys);

}  // namespace headwise
