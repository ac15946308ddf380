// Kernels over single rows: conversion between storage types and f32, rotation, norms, gates. Rows are read and written
// in their storage type; arithmetic is f32, sums are f64. Unless told, every operation rounds alone and sums have one
// order, so that all ISAs leave the same bits.
#pragma once

#include <stdint.h>

namespace headwise {

// Storage types that kernels read and write; a subset of DType with the same order of f32, bf16, f16.
enum class Storage : uint8_t { f32, bf16, f16 };

// row[i] becomes ((row[i] - mean) * factor) * weight[i] + bias[i]; null weight or bias: left out.
struct NormRow {
    double mean = 0;
    float factor = 1;
    const float* weight = nullptr;
    const float* bias = nullptr;
};

struct RowKernels {
    // to[i] = from[i] for i < count, exact. `from` has type `storage`.
    void (*widen)(float* to, const void* from, Storage storage, int64_t count);
    // to[i] = from[i] rounded to nearest even, like core/dtype.h.
    void (*narrow)(void* to, Storage storage, const float* from, int64_t count);
    // Half-split rotation in place of one head row of width 2*half, in `storage`:
    //   (a, b) = (row[i], row[i+half]) -> (a cos[i] - b sin[i], b cos[i] + a sin[i])
    void (*rotate_half)(void* row, Storage storage, const float* cos, const float* sin, int64_t half);
    // The same of interleaved pairs (a, b) = (row[2i], row[2i+1]).
    void (*rotate_interleaved)(void* row, Storage storage, const float* cos, const float* sin, int64_t half);

    // Sums of row[i] and of (row[i] - mean)^2: in f64, where neither tiny nor huge numbers leave the range.
    double (*sum)(const void* row, Storage storage, int64_t count);
    double (*sum_squares)(const void* row, Storage storage, int64_t count, double mean);
    void (*normalize)(void* row, Storage storage, int64_t count, const NormRow& norm);

    // Clamps to [-limit, limit], limit > 0; NaN stays NaN.
    void (*clip)(void* row, Storage storage, int64_t count, float limit);
    // row[i] *= sigmoid(gate[i]), both in `storage`. The sigmoid has relative error (4 + |gate[i]|) units of 2^-24, bits of its own on each ISA, and
    // is exactly 0 below about -88.
    void (*gate)(void* row, Storage storage, const void* gate, int64_t count);
    // row[i] -= factor * other[i], both in `storage`.
    void (*subtract)(void* row, Storage storage, const void* other, int64_t count, float factor);
};

}  // namespace headwise
