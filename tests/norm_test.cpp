// HeadNorm: every kind, extent, weight and type against a float64 loop.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/heads.h>

#include "core/check.h"
#include "grid.h"
#include "head_rows.h"
#include "heads/check.h"
#include "heads/norm.h"
#include "isas.h"
#include "refused.h"

namespace headwise {
namespace {

using Kind = HeadNorm::Kind;
using Extent = HeadNorm::Extent;
using Weight = HeadNorm::Weight;

// Row-major numbers of any type, and their values.
struct Factors {
    std::vector<double> values;
    Tensor tensor;

    Factors(DType dtype, const std::vector<std::int64_t>& shape, std::uint64_t seed) : tensor(dtype, shape) {
        Numbers numbers(seed);
        for (std::int64_t i = 0; i < tensor.count(); ++i) {
            store_f64(tensor.view().data, dtype, i, numbers.next());
            values.push_back(load_f64(tensor.view().data, dtype, i));
        }
    }
    double of(std::int64_t n, std::int64_t i, std::int64_t D) const {
        return values[static_cast<std::size_t>(static_cast<std::int64_t>(values.size()) == D ? i : n * D + i)];
    }
};

struct Case {
    HeadNorm norm{};
    const Factors* weight = nullptr;
    const Factors* bias = nullptr;
};

// The bound of the conformance suite's README: u(sqrt n + 8) A + u_t |y|, A the formula with absolute values.
void expect_normalized(const HeadRows& x, const HeadRows& got, const Case& c, const std::string& what) {
    const bool row = c.norm.extent == Extent::row, centred = c.norm.kind == Kind::layer_norm;
    const auto count = static_cast<double>(row ? x.N * x.D : x.D);
    x.for_each([&](std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) {
        double mean = 0, mean_size = 0, variance = 0;
        const std::int64_t first = row ? 0 : n, last = row ? x.N : n + 1;
        for (std::int64_t h = first; centred && h < last; ++h) {
            for (std::int64_t j = 0; j < x.D; ++j) {
                mean += x.at(b, t, h, j) / count;
                mean_size += std::abs(x.at(b, t, h, j)) / count;
            }
        }
        for (std::int64_t h = first; h < last; ++h) {
            for (std::int64_t j = 0; j < x.D; ++j) variance += std::pow(x.at(b, t, h, j) - mean, 2) / count;
        }
        const double sigma = std::sqrt(variance + c.norm.eps);
        double w = c.weight == nullptr ? 1 : c.weight->of(n, i, x.D);
        if (c.norm.weight == Weight::one_plus_w) w += 1;
        const double bias = c.bias == nullptr ? 0 : c.bias->of(n, i, x.D);
        const double y = (x.at(b, t, n, i) - mean) / sigma * w + bias;
        const double size = std::abs(w) * (std::abs(x.at(b, t, n, i)) + mean_size) / sigma + std::abs(bias);
        const double bound = 0x1p-24 * (std::sqrt(count) + 8) * size + unit_roundoff(x.dtype) * std::abs(y) +
                             (x.dtype == DType::f16 ? 0x1p-25 : 0);
        ASSERT_TRUE(std::abs(got.at(b, t, n, i) - y) <= bound)
            << what << " at " << b << " " << t << " " << n << " " << i << ": " << got.at(b, t, n, i)
            << ", expected " << y << " within " << bound;
    });
    EXPECT_EQ(got.gaps_changed(), 0) << what;
}

class NormTest : public IsaTest {
protected:
    static void run(HeadRows x, const Case& c, const std::string& what) {
        const HeadRows before = x;
        const ConstTensorView none;
        const Normalization normalization(c.norm, c.weight == nullptr ? none : c.weight->tensor.view(),
                                          c.bias == nullptr ? none : c.bias->tensor.view(), x.N, x.D);
        normalize(table(), x.view(), c.norm, normalization.factors(), {});
        expect_normalized(before, x, c, what);
    }
};

TEST_P(NormTest, EveryWidthAndForm) {
    for (const std::int64_t D : head_widths()) {
        const Factors weight(DType::f32, {D}, 21), bias(DType::bf16, {D}, 22);
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
            for (const Kind kind : {Kind::rms, Kind::layer_norm}) {
                for (const Extent extent : {Extent::head, Extent::row}) {
                    for (const Weight form : {Weight::none, Weight::w, Weight::one_plus_w}) {
                        const HeadNorm norm{.kind = kind, .extent = extent, .weight = form, .eps = 1e-5};
                        run(HeadRows(dtype, 2, 2, 3, D, 7),
                            {norm, form == Weight::none ? nullptr : &weight, D % 2 == 0 ? &bias : nullptr},
                            text("D ", D, " of ", dtype, " kind ", static_cast<int>(kind), " extent ",
                                 static_cast<int>(extent), " weight ", static_cast<int>(form)));
                    }
                }
            }
        }
    }
}

TEST_P(NormTest, WeightsOfEveryShapeAndType) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        for (const auto& shape : {std::vector<std::int64_t>{20}, {3, 20}, {60}}) {
            const Factors weight(dtype, shape, 31), bias(dtype, shape, 32);
            for (const Extent extent : {Extent::head, Extent::row}) {
                run(HeadRows(DType::f32, 1, 2, 3, 20, 9), {{.extent = extent}, &weight, &bias}, text(dtype));
            }
        }
    }
}

TEST_P(NormTest, TinyHugeAndShiftedNumbers) {
    const Factors weight(DType::f32, {33}, 41);
    for (const Kind kind : {Kind::rms, Kind::layer_norm}) {
        for (const double scale : {1e-30, 1e-18, 1e-4, 1e18, 1e30}) {
            for (const double eps : {0.0, 1e-60, 1e-12, 1e-6, 0.01}) {
                run(HeadRows(DType::f32, 1, 2, 2, 33, 13, scale), {{.kind = kind, .eps = eps}, &weight, nullptr},
                    text("scale ", scale, " eps ", eps));
            }
        }
    }
    // A mean that is large beside the spread: the mean itself must not be rounded to f32.
    HeadRows x(DType::f32, 1, 2, 2, 33, 17, 1e-3);
    for (std::int64_t i = 0; i < 33; ++i) {
        store_f64(x.bytes.data(), DType::f32, x.place(0, 1, 1, i), 1000 + x.at(0, 1, 1, i));
    }
    run(x, {{.kind = Kind::layer_norm, .eps = 0}, &weight, nullptr}, "shifted");
}

TEST_P(NormTest, NanStaysInItsOwnStatistics) {
    for (const Extent extent : {Extent::head, Extent::row}) {
        HeadRows x(DType::f32, 1, 2, 2, 5, 3);
        store_f64(x.bytes.data(), DType::f32, x.place(0, 0, 1, 2), std::nan(""));
        normalize(table(), x.view(), {.extent = extent, .weight = Weight::none}, {}, {});
        x.for_each([&](std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) {
            EXPECT_EQ(std::isnan(x.at(b, t, n, i)), t == 0 && (extent == Extent::row || n == 1));
        });
    }
}

TEST_P(NormTest, SameBitsForAnyThreads) {
    const HeadRows before(DType::f32, 3, grid<std::int64_t>({150}, {50})[0], 4, 128, 19);
    HeadRows one = before, four = before;
    normalize(table(), one.view(), {.weight = Weight::none}, {}, {.threads = 1});
    normalize(table(), four.view(), {.weight = Weight::none}, {}, {.threads = 4});
    EXPECT_EQ(one.bytes, four.bytes);
    EXPECT_NE(one.bytes, before.bytes);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, NormTest, every_isa(), isa_name);

TEST(Normalize, PublicFunctionHasTheBitsOfALayer) {
    HeadRows x(DType::bf16, 2, 3, 2, 24, 3), y = x;
    const Factors weight(DType::f32, {2, 24}, 5);
    const HeadNorm norm{.extent = Extent::row, .weight = Weight::one_plus_w};
    normalize(x.view(), norm, weight.tensor.view());
    normalize(kernels(), y.view(), norm, Normalization(norm, weight.tensor.view(), {}, 2, 24).factors(), {});
    EXPECT_EQ(x.bytes, y.bytes);
}

TEST(Normalize, EmptyTensorsAreLeftAlone) {
    float none = 3;
    for (const auto& sizes : {std::vector<std::int64_t>{0, 3, 2, 8}, {2, 0, 2, 8}, {2, 3, 0, 8}, {2, 3, 2, 0}}) {
        normalize(TensorView(&none, DType::f32, sizes), {.weight = Weight::none}, {});
    }
    EXPECT_EQ(none, 3);
}

TEST(Normalize, RefusesWhatDoesNotFit) {
    float x[48] = {}, w[48] = {};
    const TensorView heads(x, DType::f32, {1, 2, 3, 8});
    const ConstTensorView weight(w, DType::f32, {8});
    const HeadNorm norm, bare{.weight = Weight::none};
    const std::int64_t integers[8] = {};
    expect_refused([&] { normalize(heads, norm, {}); }, "has a weight, but none was given");
    expect_refused([&] { normalize(heads, bare, weight); }, "has no weight");
    expect_refused([&] { normalize(heads, norm, {w, DType::f32, {7}}); }, "expected any float type and [8]");
    expect_refused([&] { normalize(heads, norm, {w, DType::f32, {2, 8}}); }, "[3, 8]");
    expect_refused([&] { normalize(heads, norm, {integers, DType::i64, {8}}); }, "float type");
    expect_refused([&] { normalize(heads, norm, {nullptr, DType::f32, {8}}); }, "null address");
    expect_refused([&] { normalize(heads, norm, weight, {w, DType::f32, {9}}); }, "the bias");
    expect_refused([&] { normalize(heads, {.eps = -1}, weight); }, "eps -1");
    expect_refused([&] { normalize(heads, {.eps = std::nan("")}, weight); }, "eps nan");
    expect_refused([&] { normalize({x, DType::f32, {6, 8}}, norm, weight); }, "[B,T,N,D]");
    expect_refused([&] { normalize({x, DType::f64, {1, 2, 3, 8}}, norm, weight); }, "bf16");
    expect_refused([&] { normalize({x, DType::f32, {1, 2, 3, 8}, {48, 24, 1, 3}}, norm, weight); }, "innermost");
    expect_refused([&] { normalize({x, DType::f32, {1, 2, 3, 8}, {48, 0, 8, 1}}, norm, weight); }, "stride of 0");
    expect_refused([&] { normalize({nullptr, DType::f32, {1, 2, 3, 8}}, norm, weight); }, "null address");
}

}  // namespace
}  // namespace headwise
