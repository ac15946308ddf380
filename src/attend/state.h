// The softmax of rows over some of their keys, as a value: sums over disjoint sets of keys join into one.
#pragma once

#include <cstdint>

namespace headwise {

// Per row: the largest score seen, sum of exp(s - max), and sum of exp(s - max) v. A row that has seen nothing is
// {-inf, 0, 0}, which changes no other state by a bit.
struct RowStates {
    float* max = nullptr;
    float* sum = nullptr;
    float* o = nullptr;  // [rows][stride]
    std::int64_t stride = 0;
};

void clear_states(const RowStates& states, std::int64_t rows) noexcept;

// total = total and then part: keys of `part` come after those of `total`.
void fold_states(const RowStates& total, const RowStates& part, std::int64_t rows) noexcept;

}  // namespace headwise
