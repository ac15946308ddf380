// Matrices for tests of linear layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <headwise/tensor.h>

#include "core/dtype.h"
#include "project/packed_linear.h"

namespace headwise {

// Values of a fixed sequence: numbers around 0 with full mantissas.
class Numbers {
public:
    explicit Numbers(std::uint64_t seed) : state_(seed * 2 + 1) {}
    double next() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<double>(static_cast<std::int64_t>(state_) >> 11) * 0x1p-52;
    }

private:
    std::uint64_t state_;
};

// A matrix of any float type: rows stand apart and the gaps hold `gap`; nothing follows the last row, so that ASan sees
// whoever reads on.
struct Matrix {
    DType dtype;
    std::int64_t rows, columns, stride;
    std::vector<std::byte> bytes;

    Matrix(DType type, std::int64_t r, std::int64_t c, double gap)
        : dtype(type), rows(r), columns(c), stride(c + 3) {
        const std::int64_t count = r == 0 ? 0 : (r - 1) * stride + c;
        bytes.resize(static_cast<std::size_t>(count) * size_of(dtype));
        for (std::int64_t i = 0; i < count; ++i) store_f64(bytes.data(), dtype, i, gap);
    }
    static Matrix random(DType type, std::int64_t r, std::int64_t c, std::uint64_t seed) {
        Matrix matrix(type, r, c, std::numeric_limits<double>::quiet_NaN());
        Numbers numbers(seed);
        for (std::int64_t i = 0; i < r; ++i) {
            for (std::int64_t j = 0; j < c; ++j) matrix.set(i, j, numbers.next());
        }
        return matrix;
    }
    double at(std::int64_t row, std::int64_t column) const {
        return load_f64(bytes.data(), dtype, row * stride + column);
    }
    void set(std::int64_t row, std::int64_t column, double value) {
        store_f64(bytes.data(), dtype, row * stride + column, value);
    }
    std::int64_t gaps_changed(double gap) const {
        std::int64_t changed = 0;
        for (std::int64_t i = 0; i + 1 < rows; ++i) {
            for (std::int64_t j = columns; j < stride; ++j) changed += at(i, j) != gap;
        }
        return changed;
    }
    ConstTensorView view() const { return {bytes.data(), dtype, {rows, columns}, {stride, 1}}; }
    ConstTensorView vector() const { return {bytes.data(), dtype, {columns}}; }  // row 0
    const std::byte* row(std::int64_t i) const {
        return bytes.data() + static_cast<std::size_t>(i * stride) * size_of(dtype);
    }
    Rows as_rows(std::int64_t first = 0, std::int64_t count = -1) const {
        return {row(first), dtype, 1, count < 0 ? rows : count, 0, stride};
    }
    OutRows as_out() { return {bytes.data(), dtype, 1, rows, 0, stride}; }
};

}  // namespace headwise
