// int8 and int4: what is stored, on every ISA with the same bits, and what attention makes of it.
//
// The bound of attention, with s_t the exact score of key t, p_t its weight and d = scale / 2 of the stored groups
// (and the rounding of f32, kStep below):
//   |k' - k| <= dk, |v' - v| <= dv                                       per channel
//   |s'_t - s_t| <= |scale| sum_d |q_d| dk_td <= D,  the largest of all visible t
//   p'_t / p_t lies between exp(-2D) and exp(2D), so |p'_t - p_t| <= p_t (exp(2D) - 1)
//   out' - out = sum p'_t (v'_t - v_t) + sum (p'_t - p_t) (v_t - out)    because both p sum up to 1
//   |out' - out| <= exp(2D) sum p_t dv_t + (exp(2D) - 1) sum p_t |v_t - out|
//   |lse' - lse| <= D
// To it comes the bound of attention itself over the stored numbers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "attend_cases.h"
#include "cache_cases.h"
#include "guarded.h"
#include "isas.h"

namespace headwise::test {
namespace {

// scale and 1 / scale are rounded to f32, and so are x / scale (at most 127 steps) and steps * scale: 2^-24 of 127 steps
// four times, in steps.
constexpr double kStep = 0.5 + 4 * 127 * 0x1p-24;

class QuantTest : public IsaTest {
protected:
    static float quantize(CacheType type, void* to, const float* from, std::int64_t count) {
        const CacheKernels& kernels = table().cache;
        return (type == CacheType::int8 ? kernels.quantize8 : kernels.quantize4)(to, from, count);
    }
    static void dequantize(CacheType type, float* to, const void* from, float scale, std::int64_t count) {
        const CacheKernels& kernels = table().cache;
        (type == CacheType::int8 ? kernels.dequantize8 : kernels.dequantize4)(to, from, scale, count);
    }
    static std::vector<float> round_trip(CacheType type, const std::vector<float>& from) {
        const auto count = static_cast<std::int64_t>(from.size());
        std::vector<std::int8_t> stored(from.size());
        std::vector<float> to(from.size(), -1.0f);
        dequantize(type, to.data(), stored.data(), quantize(type, stored.data(), from.data(), count), count);
        return to;
    }
};

const std::vector<CacheType> kQuantized = {CacheType::int8, CacheType::int4};
float steps_of(CacheType type) { return type == CacheType::int8 ? 127.0f : 7.0f; }

std::vector<float> normals(std::size_t count, float size, unsigned seed) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, size);
    std::vector<float> numbers(count);
    for (float& x : numbers) x = normal(engine);
    return numbers;
}

TEST_P(QuantTest, WithinHalfAStepAndNowhereElse) {
    for (const CacheType type : kQuantized) {
        for (std::size_t count = 1; count <= 80; ++count) {
            for (const float size : {1.0f, 1e-30f, 1e30f}) {
                const auto bytes = static_cast<std::size_t>(
                    row_bytes(type, static_cast<std::int64_t>(count), static_cast<std::int64_t>(count)));
                const std::vector<float> numbers = normals(count, size, static_cast<unsigned>(count));
                // Everything directly before a forbidden page.
                const Guarded<float> from(count, Guarded<float>::at_end), to(count, Guarded<float>::at_end);
                const Guarded<std::int8_t> stored(bytes, Guarded<std::int8_t>::at_end);
                std::copy(numbers.begin(), numbers.end(), from.data());
                const auto n = static_cast<std::int64_t>(count);
                const float scale = quantize(type, stored.data(), from.data(), n);
                dequantize(type, to.data(), stored.data(), scale, n);
                float largest = 0;
                for (const float x : numbers) largest = std::max(largest, std::abs(x));
                EXPECT_EQ(scale, largest / steps_of(type));
                for (std::size_t i = 0; i < count; ++i) {
                    const double error = std::abs(static_cast<double>(to.data()[i]) - numbers[i]);
                    ASSERT_LE(error, kStep * scale) << "channel " << i << " of " << count;
                    // A whole number of steps.
                    ASSERT_EQ(to.data()[i], scale * std::nearbyint(to.data()[i] / scale));
                }
            }
        }
    }
}

// The largest channel is met exactly, and every step there is comes back.
TEST_P(QuantTest, EveryStepSurvives) {
    for (const CacheType type : kQuantized) {
        const int most = static_cast<int>(steps_of(type));
        std::vector<float> numbers;
        for (int n = -most; n <= most; ++n) numbers.push_back(0.25f * static_cast<float>(n));
        for (int shift = 0; shift < 40; ++shift) {
            EXPECT_EQ(round_trip(type, numbers), numbers);
            std::rotate(numbers.begin(), numbers.begin() + 1, numbers.end());
        }
    }
}

TEST_P(QuantTest, SameBitsOnEveryIsa) {
    for (const CacheType type : kQuantized) {
        for (const std::size_t count : std::initializer_list<std::size_t>{1, 7, 16, 31, 32, 33, 64, 100, 128}) {
            const std::vector<float> numbers = normals(count, 3, 5);
            const std::vector<float> here = round_trip(type, numbers);
            std::vector<std::int8_t> a(count), b(count);
            const CacheKernels& first = test_tables().front()->cache;
            const auto other = type == CacheType::int8 ? first.quantize8 : first.quantize4;
            const auto n = static_cast<std::int64_t>(count);
            EXPECT_EQ(quantize(type, a.data(), numbers.data(), n), other(b.data(), numbers.data(), n));
            EXPECT_EQ(a, b);
        }
    }
}

TEST_P(QuantTest, TheEndsOfTheRange) {
    constexpr float kMost = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
    for (const CacheType type : kQuantized) {
        EXPECT_EQ(round_trip(type, {0.0f, -0.0f, 0.0f}), std::vector<float>({0.0f, 0.0f, 0.0f}));
        for (const float x : round_trip(type, {kMost, -kMost, 0.0f})) EXPECT_TRUE(std::isfinite(x)) << x;
        // The scale is a normal number: below half of it everything is 0.
        for (const float x : round_trip(type, {kTiny, -kTiny})) EXPECT_LE(std::abs(x), 0x1p-127f);
        for (const float bad : {kNaN, kInf, -kInf}) {
            for (std::size_t at = 0; at < 40; ++at) {
                std::vector<float> numbers(40, 1.0f);
                numbers[at] = bad;
                for (const float x : round_trip(type, numbers)) ASSERT_TRUE(std::isnan(x)) << x;
            }
        }
    }
}

// Groups of channels have scales of their own, the last one may be short, and a NaN stays in its group.
TEST_P(QuantTest, GroupsOfChannels) {
    const NanMemory memory;
    for (const CacheType type : kQuantized) {
        for (const std::int64_t group : {0, 1, 3, 8, 32, 39, 40, 100}) {
            KvCacheConfig config{.batch = 2, .kv_heads = 2, .key_dim = 40, .value_dim = 17, .capacity = 9};
            config.type = type, config.scale_group = group;
            KvCache cache(config);
            Tokens tokens(config, 5, 3);
            for (std::int64_t i = 0; i < tokens.k.count(); ++i) {
                tokens.k.data<float>()[i] *= static_cast<float>(1 + i % 40);  // channels of unlike size
            }
            tokens.k.data<float>()[3 * 80 + 11] = kNaN;  // sequence 0, token 3, head 0, channel 11
            cache.impl().append(table(), tokens.k, tokens.v, {}, {.threads = 1});
            const std::int64_t width = group == 0 ? 40 : std::min<std::int64_t>(group, 40);
            const Tensor keys = cache.keys(0, 0, 5);
            for (std::int64_t row = 0; row < 10; ++row) {
                for (std::int64_t first = 0; first < 40; first += width) {
                    const float* given = tokens.k.data<float>() + row * 40 + first;
                    const float* held = keys.data<float>() + row * 40 + first;
                    const std::int64_t end = std::min(width, 40 - first);
                    const bool poisoned = row == 6 && first <= 11 && 11 < first + end;
                    float largest = 0;
                    for (std::int64_t i = 0; i < end; ++i) largest = std::max(largest, std::abs(given[i]));
                    for (std::int64_t i = 0; i < end; ++i) {
                        if (poisoned) {
                            ASSERT_TRUE(std::isnan(held[i]));
                        } else {
                            ASSERT_LE(std::abs(static_cast<double>(held[i]) - given[i]),
                                      kStep * largest / steps_of(type));
                        }
                    }
                }
            }
        }
    }
}

// ---- attention -----------------------------------------------------------------------------------------------

// Half a step for each channel of each row of [B,S,G,D], as the cache chose its scales.
std::vector<double> half_steps(const ConstTensorView& given, CacheType type, std::int64_t group) {
    const std::int64_t D = given.size(3), rows = given.count() / D;
    const auto* numbers = static_cast<const float*>(given.data);
    std::vector<double> steps(static_cast<std::size_t>(given.count()));
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t first = 0; first < D; first += group) {
            double largest = 0;
            for (std::int64_t c = first; c < std::min(first + group, D); ++c) {
                largest = std::max<double>(largest, std::abs(numbers[row * D + c]));
            }
            for (std::int64_t c = first; c < std::min(first + group, D); ++c) {
                steps[static_cast<std::size_t>(row * D + c)] = kStep * largest / steps_of(type);
            }
        }
    }
    return steps;
}

// What quantising may change in out and lse of row (b, i, h): the formulas at the top of this file.
struct QuantBound {
    std::vector<double> out;
    double lse = 0;

    QuantBound(const AttendInputs& in, const Expected<double>& exact, const std::vector<double>& dk,
               const std::vector<double>& dv, Visibility::Row at) {
        const std::int64_t S = in.k.size(1), G = in.k.size(2), D = in.k.size(3), Dv = in.v.size(3);
        const std::int64_t g = at.h / (in.q.size(2) / G), T = in.q.size(1), H = in.q.size(2);
        const Row<double> row = reference_row<double>(in, at.b, at.h, at.i, {});
        for (std::int64_t t = 0; t < S; ++t) {
            if (!row.seen[static_cast<std::size_t>(t)]) continue;
            double change = 0;
            for (std::int64_t d = 0; d < D; ++d) {
                change += std::abs(load_f64(in.q.data, in.q.dtype, index4(in.q, at.b, at.i, at.h, d))) *
                          dk[static_cast<std::size_t>(((at.b * S + t) * G + g) * D + d)];
            }
            lse = std::max(lse, change / std::sqrt(static_cast<double>(D)));
        }
        const double most = std::exp(2 * lse);
        for (std::int64_t c = 0; c < Dv; ++c) {
            const double mean = exact.out[static_cast<std::size_t>(((at.b * T + at.i) * H + at.h) * Dv + c)];
            double bound = 0;
            for (std::int64_t t = 0; t < S; ++t) {
                if (!row.seen[static_cast<std::size_t>(t)]) continue;
                const double p = std::exp(row.s[static_cast<std::size_t>(t)] - row.max) / row.sum;
                const double v = load_f64(in.v.data, in.v.dtype, index4(in.v, at.b, t, g, c));
                bound += most * p * dv[static_cast<std::size_t>(((at.b * S + t) * G + g) * Dv + c)] +
                         (most - 1) * p * std::abs(v - mean);
            }
            out.push_back(bound);
        }
    }
};

TEST_P(QuantTest, AttentionWithinItsBound) {
    const NanMemory memory;
    const Shape shape{.B = 2, .T = 4, .S = 150, .H = 4, .G = 2, .D = 32, .Dv = 24};
    Operands x(shape);
    // Small queries: with large ones exp(2D) makes the bound so wide that it proves nothing.
    for (std::int64_t i = 0; i < x.q.memory.count(); ++i) x.q.memory.data<float>()[i] *= 0.1f;
    AttendInputs exact_in = x.inputs();
    exact_in.mask = causal();
    const Expected<double> exact = reference<double>(exact_in);
    for (const CacheType type : kQuantized) {
        for (const std::int64_t group : {8, 32}) {
            KvCacheConfig config{.batch = 2, .kv_heads = 2, .key_dim = 32, .value_dim = 24, .capacity = 150};
            config.type = type, config.scale_group = group;
            KvCache cache(config);
            cache.impl().append(table(), x.k.view, x.v.view, {}, {.threads = 1});
            AttendInputs in;
            in.q = x.q.view, in.cache = &cache, in.mask = causal();
            const Result got(table(), in);
            const std::vector<double> dk = half_steps(x.k.view, type, group),
                                      dv = half_steps(x.v.view, type, group);
            std::vector<double> out_bound = exact.out_bound, lse_bound = exact.lse_bound;
            for (std::int64_t b = 0; b < 2; ++b)
                for (std::int64_t i = 0; i < 4; ++i)
                    for (std::int64_t h = 0; h < 4; ++h) {
                        const QuantBound bound(exact_in, exact, dk, dv, {b, h, i});
                        for (std::int64_t c = 0; c < 24; ++c) {
                            out_bound[static_cast<std::size_t>(((b * 4 + i) * 4 + h) * 24 + c)] +=
                                bound.out[static_cast<std::size_t>(c)];
                        }
                        lse_bound[static_cast<std::size_t>((b * 4 + h) * 4 + i)] += bound.lse;
                    }
            const Verdict out = judge(ConstTensorView(got.out.view), exact.out, out_bound);
            EXPECT_EQ(out.bad, 0) << out.first;
            EXPECT_GT(out.worst_ratio, 0.01) << "a bound that nothing comes near proves nothing";
            const Verdict lse = judge(ConstTensorView(got.lse.view()), exact.lse, lse_bound);
            EXPECT_EQ(lse.bad, 0) << lse.first;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, QuantTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
