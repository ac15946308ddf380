// VecOps of one ISA.
#include "kernels/vec.h"
#include "vec_ops.h"

namespace headwise::HEADWISE_ISA {
namespace {

void zero_(float* out, float) { store(out, zero()); }
void set1_(float* out, float x) { store(out, set1(x)); }
void load_(float* out, const float* p) { store(out, load(p)); }
void load_n_(float* out, const float* p, int n) { store(out, load_n(p, n)); }
void store_n_(float* p, const float* a, int n) { store_n(p, load(a), n); }

void load_bf16_(float* out, const uint16_t* p) { store(out, load_bf16(p)); }
void load_f16_(float* out, const uint16_t* p) { store(out, load_f16(p)); }
void load_bf16_n_(float* out, const uint16_t* p, int n) { store(out, load_bf16_n(p, n)); }
void load_f16_n_(float* out, const uint16_t* p, int n) { store(out, load_f16_n(p, n)); }
void store_bf16_(uint16_t* p, const float* a) { store_bf16(p, load(a)); }
void store_f16_(uint16_t* p, const float* a) { store_f16(p, load(a)); }
void store_bf16_n_(uint16_t* p, const float* a, int n) { store_bf16_n(p, load(a), n); }
void store_f16_n_(uint16_t* p, const float* a, int n) { store_f16_n(p, load(a), n); }

void load_i8_(float* out, const int8_t* p) { store(out, load_i8(p)); }
void load_i8_n_(float* out, const int8_t* p, int n) { store(out, load_i8_n(p, n)); }
void store_i8_n_(int8_t* p, const float* a, int n) { store_i8_n(p, load(a), n); }

void add_(float* out, const float* a, const float* b) { store(out, add(load(a), load(b))); }
void sub_(float* out, const float* a, const float* b) { store(out, sub(load(a), load(b))); }
void mul_(float* out, const float* a, const float* b) { store(out, mul(load(a), load(b))); }
void div_(float* out, const float* a, const float* b) { store(out, div(load(a), load(b))); }
void max_(float* out, const float* a, const float* b) { store(out, max(load(a), load(b))); }
void fma_(float* out, const float* a, const float* b, const float* c) {
    store(out, fma(load(a), load(b), load(c)));
}

void show(float* out, Mask mask) { store(out, select(mask, set1(1.0f), zero())); }
void less_(float* out, const float* a, const float* b) { show(out, less(load(a), load(b))); }
void first_n_(float* out, int n) { show(out, first_n(n)); }
void mask_of_bytes_(float* out, const uint8_t* p, int n) { show(out, mask_of_bytes(p, n)); }
void mask_and_(float* out, const uint8_t* a, const uint8_t* b) {
    show(out, mask_and(mask_of_bytes(a, kLanes), mask_of_bytes(b, kLanes)));
}
bool any_(const uint8_t* mask) { return any(mask_of_bytes(mask, kLanes)); }
void select_(float* out, const uint8_t* mask, const float* a, const float* b) {
    store(out, select(mask_of_bytes(mask, kLanes), load(a), load(b)));
}

void round_(float* out, const float* a) { store(out, round(load(a))); }
void times_pow2_(float* out, const float* a, const float* n) { store(out, times_pow2(load(a), load(n))); }
float sum_(const float* a) { return sum(load(a)); }
float max_lane_(const float* a) { return max_lane(load(a)); }
void twice_(float* out, const float* a) { store(out, twice(load(a))); }
void swap_pairs_(float* out, const float* a) { store(out, swap_pairs(load(a))); }
void transpose_(float* rows) {
    Vec r[kLanes];
    for (int i = 0; i < kLanes; ++i) r[i] = load(rows + i * kLanes);
    transpose(r);
    for (int i = 0; i < kLanes; ++i) store(rows + i * kLanes, r[i]);
}
void pin_(float* out, const float* a) {
    Vec v = load(a);
    pin(v);
    store(out, v);
}
void prefetch_(const void* p) { prefetch(p); }

}  // namespace

#define HEADWISE_TEXT_(x) #x
#define HEADWISE_TEXT(x) HEADWISE_TEXT_(x)

extern constinit const VecOps kVecOps = {
    .isa = HEADWISE_TEXT(HEADWISE_ISA),
    .lanes = kLanes,
    .tile_rows = kTileRows,
    .zero = zero_,
    .set1 = set1_,
    .load = load_,
    .round = round_,
    .pin = pin_,
    .twice = twice_,
    .swap_pairs = swap_pairs_,
    .load_n = load_n_,
    .store_n = store_n_,
    .load_bf16 = load_bf16_,
    .load_f16 = load_f16_,
    .load_bf16_n = load_bf16_n_,
    .load_f16_n = load_f16_n_,
    .store_bf16 = store_bf16_,
    .store_f16 = store_f16_,
    .store_bf16_n = store_bf16_n_,
    .store_f16_n = store_f16_n_,
    .load_i8 = load_i8_,
    .load_i8_n = load_i8_n_,
    .store_i8_n = store_i8_n_,
    .add = add_,
    .sub = sub_,
    .mul = mul_,
    .div = div_,
    .max = max_,
    .less = less_,
    .times_pow2 = times_pow2_,
    .fma = fma_,
    .select = select_,
    .first_n = first_n_,
    .mask_of_bytes = mask_of_bytes_,
    .mask_and = mask_and_,
    .any = any_,
    .sum = sum_,
    .max_lane = max_lane_,
    .transpose = transpose_,
    .prefetch = prefetch_,
};

}  // namespace headwise::HEADWISE_ISA
