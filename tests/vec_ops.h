// The vocabulary of kernels/vec.h as a table of functions over arrays, so that vec_test.cpp can call every ISA's.
// Arrays hold `lanes` values; a mask is made of `lanes` bytes and shown as lanes of 1 and 0.
#pragma once

#include <stdint.h>

namespace headwise {

struct VecOps {
    using Make = void (*)(float* out, float x);
    using Unary = void (*)(float* out, const float* a);
    using Binary = void (*)(float* out, const float* a, const float* b);
    using Reduce = float (*)(const float* a);

    const char* isa;
    int lanes, tile_rows;
    Make zero, set1;
    Unary load, round, pin, twice, swap_pairs;  // load: load(p), then store(out)
    void (*load_n)(float* out, const float* p, int n);
    void (*store_n)(float* p, const float* a, int n);
    void (*load_bf16)(float* out, const uint16_t* p);
    void (*load_f16)(float* out, const uint16_t* p);
    void (*load_bf16_n)(float* out, const uint16_t* p, int n);
    void (*load_f16_n)(float* out, const uint16_t* p, int n);
    void (*store_bf16)(uint16_t* p, const float* a);
    void (*store_f16)(uint16_t* p, const float* a);
    void (*store_bf16_n)(uint16_t* p, const float* a, int n);
    void (*store_f16_n)(uint16_t* p, const float* a, int n);
    void (*load_i8)(float* out, const int8_t* p);
    void (*load_i8_n)(float* out, const int8_t* p, int n);
    void (*store_i8_n)(int8_t* p, const float* a, int n);
    Binary add, sub, mul, div, max, less, times_pow2;
    void (*fma)(float* out, const float* a, const float* b, const float* c);
    void (*select)(float* out, const uint8_t* mask, const float* a, const float* b);
    void (*first_n)(float* out, int n);
    void (*mask_of_bytes)(float* out, const uint8_t* p, int n);
    void (*mask_and)(float* out, const uint8_t* a, const uint8_t* b);
    bool (*any)(const uint8_t* mask);
    Reduce sum, max_lane;
    void (*transpose)(float* rows);  // lanes x lanes
    void (*prefetch)(const void* p);
};

}  // namespace headwise
