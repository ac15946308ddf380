// Kernels over single rows: conversion between storage types and f32, rotation.
#pragma once

#include <stdint.h>

namespace headwise {

// Storage types that kernels read and write; a subset of DType with the same order of f32, bf16, f16.
enum class Storage : uint8_t { f32, bf16, f16 };

struct RowKernels {
    // to[i] = from[i] for i < count, exact. `from` has type `storage`.
    void (*widen)(float* to, const void* from, Storage storage, int64_t count);
    // to[i] = from[i] rounded to nearest even, like core/dtype.h.
    void (*narrow)(void* to, Storage storage, const float* from, int64_t count);
    // Half-split rotation in place of one head row of width 2*half, in `storage`:
    //   (a, b) = (row[i], row[i+half]) -> (a cos[i] - b sin[i], b cos[i] + a sin[i])
    // Each product and sum rounds once to f32: same bits on every ISA.
    void (*rotate_half)(void* row, Storage storage, const float* cos, const float* sin, int64_t half);
};

}  // namespace headwise
