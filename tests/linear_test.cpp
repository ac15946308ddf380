#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/error.h>

#include "core/check.h"
#include "core/dtype.h"
#include "grid.h"
#include "isas.h"
#include "matrix.h"
#include "project/packed_linear.h"

namespace headwise {
namespace {

constexpr double kUnit = 0x1p-24;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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

bool same_floats(const std::byte* a, const std::byte* b, std::int64_t count) {
    return std::equal(a, a + count * 4, b);
}

constexpr double kSentinel = -77;

// x W^T + bias by `linear`; the gaps of y stay as they are.
Matrix product(const PackedLinear& linear, const Matrix& x, DType dtype = DType::f32, int threads = 1) {
    Matrix y(dtype, x.rows, linear.out_features(), kSentinel);
    linear.run(x.as_rows(), y.as_out(), {.threads = threads});
    EXPECT_EQ(y.gaps_changed(kSentinel), 0);
    return y;
}

PackedLinear pack(const KernelTable& table, const Matrix& w, const Matrix& bias, DType storage = DType::f32) {
    const LinearBand band{w.view(), bias.vector()};
    return {table, {&band, 1}, storage};
}

// Every element has exactly the bits of the chain.
void expect_chain(const KernelTable& table, const Case& c) {
    SCOPED_TRACE(name(c));
    const Matrix x = Matrix::random(c.x, c.m, c.k, 1);
    const Matrix w = Matrix::random(DType::f32, c.n, c.k, 2);
    const Matrix bias = Matrix::random(DType::f32, 1, c.n, 3);
    const Matrix y = product(pack(table, w, bias, c.storage), x, c.y, c.threads);
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < c.m; ++i) {
        for (std::int64_t j = 0; j < c.n; ++j) {
            const double sum = chain(table, x, i, w, j, static_cast<float>(bias.at(0, j)), c.storage);
            wrong += y.at(i, j) != in_storage(sum, c.y);
        }
    }
    EXPECT_EQ(wrong, 0);
}

class LinearTest : public IsaTest {};
constexpr DType kStorages[] = {DType::f32, DType::bf16, DType::f16};

TEST_P(LinearTest, IsOneChainAroundEveryTileEdge) {
    const std::int64_t r = table().tile_rows, p = table().panel;
    for (const std::int64_t m :
         grid<std::int64_t>({1, 2, 3, 4, 5, r - 1, r, r + 1, 2 * r + 1, 25, 48, 49, 97}, {1, 4, r + 1, 49})) {
        for (const std::int64_t n :
             grid<std::int64_t>({1, p - 1, p, p + 1, 4 * p, 9 * p + 3}, {1, p, 9 * p + 3})) {
            for (const std::int64_t k : grid<std::int64_t>({1, 5, 16, 33}, {1, 33})) {
                for (const DType storage : kStorages) expect_chain(table(), {m, n, k, storage});
            }
        }
    }
}

// A panel's k is worked on in stretches (8192 floats of one panel, 6144 of a tile of narrow blocks); partial sums between
// them change no bit.
TEST_P(LinearTest, IsOneChainAcrossStretches) {
    const std::int64_t p = table().panel;
    const std::int64_t wide = 8192 / p, narrow = 6144 / (table().tile_rows / 2 * p);
    for (const std::int64_t m : {1, 2, 5, 11}) {
        for (const std::int64_t stretch : {wide, narrow}) {
            for (const std::int64_t k : {stretch - 1, stretch, stretch + 1, 2 * stretch + 3}) {
                for (const DType storage : {DType::f32, DType::f16}) expect_chain(table(), {m, p + 1, k, storage});
            }
        }
    }
}

TEST_P(LinearTest, ConvertsEveryTypeOnce) {
    for (const DType x : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        for (const DType y : kStorages) {
            for (const std::int64_t m : {1, 7}) {
                expect_chain(table(), {m, 3 * table().panel - 1, 37, DType::bf16, x, y});
                expect_chain(table(), {m, 2 * table().panel, 37, DType::f32, x, y});
            }
        }
    }
}

// DESIGN section 5 without softmax: u (sqrt K + 8) sum |x w| + u_t |y|, against float64.
TEST_P(LinearTest, StaysInsideTheErrorBound) {
    for (const DType dtype : kStorages) {
        const double unit = dtype == DType::f32 ? kUnit : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
        const Matrix x = Matrix::random(dtype, 9, 500, 1), w = Matrix::random(dtype, 70, 500, 2);
        const Matrix bias = Matrix::random(DType::f64, 1, 70, 3);
        const Matrix y = product(pack(table(), w, bias, dtype), x, dtype);
        for (std::int64_t i = 0; i < y.rows; ++i) {
            for (std::int64_t j = 0; j < y.columns; ++j) {
                double sum = bias.at(0, j), size = std::abs(sum);
                for (std::int64_t k = 0; k < x.columns; ++k) {
                    sum += x.at(i, k) * w.at(j, k);
                    size += std::abs(x.at(i, k) * w.at(j, k));
                }
                const double bound = kUnit * (std::sqrt(500.0) + 8) * size + unit * std::abs(sum);
                ASSERT_TRUE(std::abs(y.at(i, j) - sum) <= bound)
                    << i << ", " << j << ": " << y.at(i, j) << ", " << sum;
            }
        }
    }
}

// Large enough for several threads; 5 threads are more than most test machines have.
TEST_P(LinearTest, BitsDoNotDependOnThreads) {
    for (const std::int64_t m : {1, 4, 130}) {
        const std::int64_t n = m == 1 ? 3 * 512 + 5 : 261, k = m == 130 ? 130 : 1030;
        const PackedLinear linear =
            pack(table(), Matrix::random(DType::f32, n, k, 2), Matrix::random(DType::f32, 1, n, 3));
        const Matrix x = Matrix::random(DType::f16, m, k, 1);
        const Matrix one = product(linear, x);
        for (const int threads : {2, 5}) EXPECT_EQ(product(linear, x, DType::f32, threads).bytes, one.bytes) << m;
    }
}

TEST_P(LinearTest, ARowAloneHasTheBitsThatItHasAmongMany) {
    const std::int64_t rows = full_grid() ? 2048 : 200, k = 67, n = 2 * table().panel + 5;
    for (const DType storage : kStorages) {
        const PackedLinear linear =
            pack(table(), Matrix::random(DType::f32, n, k, 2), Matrix::random(DType::f32, 1, n, 3), storage);
        const Matrix x = Matrix::random(DType::f32, rows, k, 1);
        const Matrix all = product(linear, x, DType::f32, 2);
        for (std::int64_t row = 0; row < rows; row += 1 + row / 8) {
            for (const std::int64_t count : {1, 3, 6}) {
                if (row + count > rows) continue;
                Matrix y(DType::f32, count, n, kSentinel);
                linear.run(x.as_rows(row, count), y.as_out(), {.threads = 1});
                for (std::int64_t i = 0; i < count; ++i) {
                    EXPECT_TRUE(same_floats(y.row(i), all.row(row + i), n));
                }
            }
        }
    }
}

// [B,T,K] with gaps between rows and between batches, x and y laid out differently.
TEST_P(LinearTest, TakesBatchesOfAnyStride) {
    const std::int64_t k = 19, n = table().panel + 2;
    const PackedLinear linear =
        pack(table(), Matrix::random(DType::f32, n, k, 2), Matrix::random(DType::f32, 1, n, 3));
    for (const std::int64_t t : {1, 3, 20}) {
        const std::int64_t batches = 4;
        const Matrix x = Matrix::random(DType::f32, batches * t, k, 1);
        const Matrix expected = product(linear, x);
        // Time-major x: row (b, t) is row t * batches + b of the matrix.
        Matrix y(DType::f32, batches * t, n, kSentinel);
        linear.run({x.bytes.data(), DType::f32, batches, t, x.stride, batches * x.stride},
                   {y.bytes.data(), DType::f32, batches, t, t * y.stride, y.stride}, {});
        EXPECT_EQ(y.gaps_changed(kSentinel), 0);
        for (std::int64_t b = 0; b < batches; ++b) {
            for (std::int64_t i = 0; i < t; ++i) {
                EXPECT_TRUE(same_floats(y.row(b * t + i), expected.row(i * batches + b), n));
            }
        }
    }
}

TEST_P(LinearTest, BandsStandSideBySide) {
    const std::int64_t k = 40, widths[] = {table().panel + 3, 5, 0, 2 * table().panel};
    std::vector<Matrix> weights, biases;
    std::vector<LinearBand> bands;
    for (const std::int64_t width : widths) {
        weights.push_back(Matrix::random(DType::bf16, width, k, bands.size() + 2));
        biases.push_back(Matrix::random(DType::f16, 1, width, bands.size() + 9));
        bands.push_back({weights.back().view(), bands.size() == 1 ? ConstTensorView() : biases.back().vector()});
    }
    const PackedLinear all(table(), bands, DType::f32);
    ASSERT_EQ(all.bands(), 4);
    EXPECT_EQ(all.in_features(), k);
    EXPECT_EQ(all.out_features(), 3 * table().panel + 8);
    EXPECT_GE(all.bytes(), all.out_features() * (k + 1) * 4);
    for (const std::int64_t m : {1, 4, 20}) {
        const Matrix x = Matrix::random(DType::f32, m, k, 1);
        const Matrix y = product(all, x);
        for (int i = 0; i < 4; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const Matrix alone = product(PackedLinear(table(), {&bands[at], 1}, DType::f32), x);
            Matrix picked(DType::f32, m, widths[i], kSentinel);
            all.run(x.as_rows(), picked.as_out(), {}, i, 1);
            EXPECT_EQ(picked.bytes, alone.bytes);
            for (std::int64_t row = 0; row < m; ++row) {
                EXPECT_TRUE(same_floats(y.row(row) + all.band_offset(i) * 4, alone.row(row), widths[i]));
            }
        }
        Matrix tail(DType::f32, m, 5 + 2 * table().panel, kSentinel);
        all.run(x.as_rows(), tail.as_out(), {}, 1);
        for (std::int64_t row = 0; row < m; ++row) {
            EXPECT_TRUE(same_floats(tail.row(row), y.row(row) + all.band_offset(1) * 4, tail.columns));
        }
    }
}

// Conv1D checkpoints store [K,N].
TEST_P(LinearTest, PacksAnyStrides) {
    for (const DType dtype : kStorages) {
        const Matrix w = Matrix::random(dtype, 21, 30, 2), bias = Matrix::random(DType::f32, 1, 21, 3);
        Matrix turned(dtype, 30, 21, kNan);
        for (std::int64_t i = 0; i < 30; ++i) {
            for (std::int64_t j = 0; j < 21; ++j) turned.set(i, j, w.at(j, i));
        }
        const LinearBand band{turned.view().swap_axes(0, 1), bias.vector()};
        const Matrix x = Matrix::random(DType::f32, 5, 30, 1);
        EXPECT_EQ(product(PackedLinear(table(), {&band, 1}, dtype), x).bytes,
                  product(pack(table(), w, bias, dtype), x).bytes);
    }
}

TEST_P(LinearTest, NonFiniteValuesStayInTheirRowAndColumn) {
    const std::int64_t n = table().panel + 3, k = 20;
    for (const std::int64_t m : {1, 4, 13}) {
        for (const float value : {kNan, kInf, -kInf}) {
            Matrix x = Matrix::random(DType::f32, m, k, 1), w = Matrix::random(DType::f32, n, k, 2);
            x.set(m - 1, 7, value);
            w.set(n - 2, 3, value);
            const Matrix y = product(pack(table(), w, Matrix(DType::f32, 1, n, 0)), x);
            for (std::int64_t i = 0; i < m; ++i) {
                for (std::int64_t j = 0; j < n; ++j) {
                    EXPECT_EQ(std::isfinite(y.at(i, j)), i != m - 1 && j != n - 2) << i << ", " << j;
                }
            }
        }
    }
}

TEST_P(LinearTest, ZeroSizesAreLegal) {
    const Matrix bias = Matrix::random(DType::f32, 1, 5, 3);
    const Matrix no_k(DType::f32, 5, 0, 0);
    for (const std::int64_t m : {1, 3, 9}) {
        const Matrix y = product(pack(table(), no_k, bias), Matrix(DType::f32, m, 0, 0));
        for (std::int64_t i = 0; i < m; ++i) EXPECT_TRUE(same_floats(y.row(i), bias.row(0), 5));
    }
    const Matrix w = Matrix::random(DType::f32, 5, 8, 1);
    EXPECT_TRUE(product(pack(table(), w, bias), Matrix(DType::f32, 0, 8, 0)).bytes.empty());
    const PackedLinear empty = pack(table(), Matrix(DType::f32, 0, 8, 0), Matrix(DType::f32, 1, 0, 0));
    EXPECT_EQ(empty.out_features(), 0);
    product(empty, Matrix::random(DType::f32, 3, 8, 1));
}

TEST_P(LinearTest, RejectsBandsThatDoNotFit) {
    const Matrix w = Matrix::random(DType::f32, 5, 8, 1), other = Matrix::random(DType::f32, 5, 9, 1);
    const Matrix bias = Matrix::random(DType::f32, 1, 5, 1), wrong = Matrix::random(DType::f32, 1, 6, 1);
    const auto make = [&](std::vector<LinearBand> bands, DType storage = DType::f32) {
        PackedLinear(table(), bands, storage);
    };
    EXPECT_NO_THROW(make({{w.view(), bias.vector()}, {w.view(), {}}}));
    EXPECT_THROW(make({}), Error);
    EXPECT_THROW(make({{w.view(), {}}}, DType::f64), Error);
    EXPECT_THROW(make({{w.view(), {}}, {other.view(), {}}}), Error);
    EXPECT_THROW(make({{w.view(), wrong.vector()}}), Error);
    EXPECT_THROW(make({{w.view(), w.view()}}), Error);
    EXPECT_THROW(make({{bias.vector(), {}}}), Error);
    EXPECT_THROW(make({{ConstTensorView(), {}}}), Error);
    const PackedLinear linear = pack(table(), w, bias);
    Matrix y(DType::f64, 1, 5, 0);
    EXPECT_THROW(linear.run(w.as_rows(0, 1), y.as_out(), {}), Error);
}

// The hook of the test below.
std::atomic<int> allocations;
void* counted_allocate(void*, std::size_t bytes, std::size_t alignment) {
    ++allocations;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void plain_free(void*, void* pointer, std::size_t, std::size_t) { std::free(pointer); }

TEST_P(LinearTest, ASteadyCallAllocatesNothing) {
    const std::int64_t n = 300, k = 64;
    set_allocator({nullptr, counted_allocate, plain_free});
    {
        const PackedLinear linear =
            pack(table(), Matrix::random(DType::f32, n, k, 2), Matrix::random(DType::f32, 1, n, 3));
        for (const std::int64_t m : {1, 100}) {
            const Matrix x = Matrix::random(DType::bf16, m, k, 1);
            Matrix y(DType::f32, m, n, 0);
            linear.run(x.as_rows(), y.as_out(), {.threads = 2});
            const int before = allocations;
            for (int i = 0; i < 3; ++i) linear.run(x.as_rows(), y.as_out(), {.threads = 2});
            EXPECT_EQ(allocations, before);
        }
    }
    set_allocator({});
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, LinearTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise
