#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/error.h>

#include "core/check.h"
#include "core/dtype.h"
#include "grid.h"
#include "isas.h"
#include "project/packed_linear.h"

namespace headwise {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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

// A matrix of any float type inside a larger buffer: row stride wider than a row, the gaps hold `gap`.
struct Matrix {
    DType dtype;
    std::int64_t rows, columns, stride;
    std::vector<std::byte> bytes;

    Matrix(DType type, std::int64_t r, std::int64_t c, double gap, std::int64_t extra = 3)
        : dtype(type), rows(r), columns(c), stride(c + extra) {
        bytes.resize(static_cast<std::size_t>(rows * stride) * size_of(dtype));
        for (std::int64_t i = 0; i < rows * stride; ++i) store_f64(bytes.data(), dtype, i, gap);
    }
    static Matrix random(DType type, std::int64_t r, std::int64_t c, std::uint64_t seed) {
        Matrix matrix(type, r, c, kNan);
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
    ConstTensorView view() const { return {bytes.data(), dtype, {rows, columns}, {stride, 1}}; }
    Rows as_rows() const { return {bytes.data(), dtype, 1, rows, rows * stride, stride}; }
    OutRows as_out() { return {bytes.data(), dtype, 1, rows, rows * stride, stride}; }
    const std::byte* row_bytes(std::int64_t row) const {
        return bytes.data() + static_cast<std::size_t>(row * stride) * size_of(dtype);
    }
    std::size_t row_size() const { return static_cast<std::size_t>(columns) * size_of(dtype); }
};

bool is_fused(const KernelTable& table) {
    const std::string isa = table.isa;
    return isa != "scalar" && isa != "portable16";
}

double in_storage(double value, DType storage) {
    std::uint64_t element = 0;
    store_f64(&element, storage, 0, value);
    return load_f64(&element, storage, 0);
}

// The law: one chain over k in order, then + bias, then one rounding to the type of y.
double chain(const KernelTable& table, const Matrix& x, std::int64_t row, const Matrix& w, std::int64_t column,
             float bias, DType storage) {
    float sum = 0;
    for (std::int64_t k = 0; k < x.columns; ++k) {
        const auto a = static_cast<float>(x.at(row, k));
        const auto b = static_cast<float>(in_storage(w.at(column, k), storage));
        sum = is_fused(table) ? std::fma(a, b, sum) : a * b + sum;
    }
    return sum + bias;
}

struct Case {
    std::int64_t m, n, k;
    DType storage = DType::f32, x = DType::f32, y = DType::f32;
    int threads = 1;
};
std::string name(const Case& c) {
    return text(c.m, "x", c.n, "x", c.k, " weights ", name_of(c.storage), " x ", name_of(c.x), " y ", name_of(c.y),
                " threads ", c.threads);
}

constexpr double kSentinel = -77;

// Every element has exactly the bits of the chain; nothing outside [M,N] is written.
void expect_chain(const KernelTable& table, const Case& c) {
    SCOPED_TRACE(name(c));
    const Matrix x = Matrix::random(c.x, c.m, c.k, 1);
    const Matrix w = Matrix::random(DType::f32, c.n, c.k, 2);
    const Matrix bias = Matrix::random(DType::f32, 1, c.n, 3);
    const LinearBand band{w.view(), ConstTensorView(bias.bytes.data(), DType::f32, {c.n})};
    const PackedLinear linear(table, {&band, 1}, c.storage);
    Matrix y(c.y, c.m, c.n, kSentinel);
    linear.run(x.as_rows(), y.as_out(), {.threads = c.threads});

    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < c.m; ++i) {
        for (std::int64_t j = 0; j < c.n; ++j) {
            const double expected =
                in_storage(chain(table, x, i, w, j, static_cast<float>(bias.at(0, j)), c.storage), c.y);
            wrong += y.at(i, j) != expected;
        }
        for (std::int64_t j = c.n; j < y.stride; ++j) wrong += y.at(i, j) != kSentinel;
    }
    EXPECT_EQ(wrong, 0);
}

class LinearTest : public IsaTest {};

TEST_P(LinearTest, IsOneChainAroundEveryTileEdge) {
    const std::int64_t r = table().tile_rows, p = table().panel;
    for (const std::int64_t m :
         grid<std::int64_t>({1, 2, 3, 4, r - 1, r, r + 1, 2 * r + 1, 25, 48, 49, 97}, {1, 3, r + 1, 49})) {
        for (const std::int64_t n :
             grid<std::int64_t>({1, p - 1, p, p + 1, 4 * p, 7 * p + 3}, {1, p, 7 * p + 3})) {
            for (const std::int64_t k : grid<std::int64_t>({1, 5, 16, 33}, {1, 33})) {
                for (const DType storage : {DType::f32, DType::bf16, DType::f16}) {
                    expect_chain(table(), {.m = m, .n = n, .k = k, .storage = storage});
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, LinearTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise
