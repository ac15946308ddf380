// Frequencies and multipliers of every scaling, and every rule of Rope. The expected numbers come from other forms of the
// formulas than the library uses: by how often a pair turns within the positions of the training, or by powers of the
// stretch.
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/heads.h>

#include "heads/check.h"
#include "heads/rope.h"
#include "isas.h"
#include "refused.h"

namespace headwise {
namespace {

using Kind = RopeScaling::Kind;

double base(double theta, std::int64_t width, std::int64_t i) {
    return std::exp(-std::log(theta) * 2 * static_cast<double>(i) / static_cast<double>(width));
}

template <class Expected>
void expect_frequencies(const Rope& rope, std::int64_t width, std::int64_t longest, Expected expected) {
    const RopeFrequencies numbers = rope_frequencies(rope, width, longest);
    ASSERT_EQ(static_cast<std::int64_t>(numbers.frequencies.size()), width / 2);
    for (std::int64_t i = 0; i < width / 2; ++i) {
        const double want = expected(i);
        EXPECT_NEAR(numbers.frequencies[static_cast<std::size_t>(i)], want, 1e-13 * want) << i << " of " << width;
    }
}

TEST(RopeFrequencies, OfTheta) {
    for (const std::int64_t width : {2, 4, 64, 128}) {
        expect_frequencies(Rope{.theta = 500}, width, 0, [&](std::int64_t i) { return base(500, width, i); });
    }
    EXPECT_EQ(rope_frequencies(Rope{}, 8).multiplier, 1);
    EXPECT_EQ(rope_frequencies(Rope{.scaling = {.attention_factor = 1.25}}, 8).multiplier, 1.25);
    // Partial rotation counts its own width.
    const RopeFrequencies partial = rope_frequencies(Rope{.width = 4, .offset = 2}, 16);
    EXPECT_EQ(partial.frequencies, rope_frequencies(Rope{}, 4).frequencies);
    EXPECT_EQ(rope_frequencies(Rope{.offset = 12}, 16).frequencies, partial.frequencies);
}

TEST(RopeFrequencies, Linear) {
    expect_frequencies(Rope{.scaling = {.kind = Kind::linear, .factor = 4}}, 16, 0,
                       [](std::int64_t i) { return base(10000, 16, i) / 4; });
}

// Dynamic: pair i is slowed by the power i / (pairs - 1) of the stretch, the last one by all of it.
TEST(RopeFrequencies, Dynamic) {
    const Rope rope{.scaling = {.kind = Kind::dynamic, .factor = 2, .max_position = 64}};
    for (const std::int64_t longest : {0, 1, 64}) {
        expect_frequencies(rope, 16, longest, [](std::int64_t i) { return base(10000, 16, i); });
    }
    for (const std::int64_t longest : {65, 200, 4096}) {
        const double stretch = 2 * static_cast<double>(longest) / 64 - 1;
        expect_frequencies(rope, 16, longest, [&](std::int64_t i) {
            return base(10000, 16, i) / std::pow(stretch, static_cast<double>(i) / 7);
        });
    }
    EXPECT_EQ(rope_frequencies(rope, 2, 4096).frequencies, std::vector<double>{1});
}

TEST(RopeFrequencies, DynamicAlpha) {
    const Rope rope{.scaling = {.kind = Kind::dynamic_alpha, .alpha = 1000}};
    for (const std::int64_t longest : {0, 100000}) {
        expect_frequencies(rope, 32, longest, [](std::int64_t i) {
            return base(10000, 32, i) / std::pow(1000, static_cast<double>(i) / 15);
        });
    }
}

TEST(RopeFrequencies, Llama3) {
    const Rope rope{
        .theta = 500000,
        .scaling = {.kind = Kind::llama3, .factor = 8, .original_max_position = 8192, .low_freq_factor = 1}};
    int kept = 0, divided = 0;
    expect_frequencies(rope, 128, 0, [&](std::int64_t i) {
        const double f = base(500000, 128, i), turns = 8192 * f / (2 * std::numbers::pi);
        kept += turns > 4, divided += turns < 1;
        if (turns > 4) return f;
        if (turns < 1) return f / 8;
        return f / 8 + (turns - 1) / 3 * (f - f / 8);
    });
    EXPECT_GT(kept, 0);
    EXPECT_GT(divided, 0);
    EXPECT_LT(kept + divided, 64);
}

// The pair, as a real number, that turns `turns` times within `positions`: by bisection.
double pair_that_turns(double turns, double positions, double theta, double width) {
    double low = -1000, high = 1000;
    while (high - low > 1e-12) {
        const double middle = (low + high) / 2;
        (positions * std::pow(theta, -2 * middle / width) / (2 * std::numbers::pi) > turns ? low : high) = middle;
    }
    return low;
}

TEST(RopeFrequencies, Yarn) {
    for (const bool truncate : {true, false}) {
        const Rope rope{.theta = 150000,
                        .scaling = {.kind = Kind::yarn,
                                    .factor = 32,
                                    .original_max_position = 4096,
                                    .beta_fast = 24,
                                    .beta_slow = 2,
                                    .truncate = truncate}};
        double from = pair_that_turns(24, 4096, 150000, 64), to = pair_that_turns(2, 4096, 150000, 64);
        if (truncate) from = std::floor(from), to = std::ceil(to);
        int between = 0;
        const RopeFrequencies numbers = rope_frequencies(rope, 64);
        for (std::int64_t i = 0; i < 32; ++i) {
            const double f = base(150000, 64, i), at = static_cast<double>(i);
            const double share = at <= from ? 0 : at >= to ? 1 : (at - from) / (to - from);
            between += share > 0 && share < 1;
            EXPECT_NEAR(numbers.frequencies[static_cast<std::size_t>(i)], f * (1 - share * 31 / 32), 1e-11 * f)
                << i;
        }
        EXPECT_GT(between, 2);
        EXPECT_DOUBLE_EQ(numbers.multiplier, 1 + 0.1 * 5 * std::numbers::ln2);
    }
}

// Both ends clamped: every pair of a short training turns less than beta_slow, so all are divided.
TEST(RopeFrequencies, YarnBeyondTheEnds) {
    const Rope rope{.scaling = {.kind = Kind::yarn, .factor = 4, .original_max_position = 4}};
    const RopeFrequencies numbers = rope_frequencies(rope, 8);
    EXPECT_EQ(numbers.frequencies[0], 1);  // low = high = 0: the ramp is a step behind pair 0
    for (std::size_t i = 1; i < 4; ++i) {
        EXPECT_DOUBLE_EQ(numbers.frequencies[i], base(10000, 8, static_cast<std::int64_t>(i)) / 4);
    }
}

TEST(RopeFrequencies, MultipliersOfYarn) {
    RopeScaling s{.kind = Kind::yarn, .factor = 40, .original_max_position = 4096};
    const auto multiplier = [&] { return rope_frequencies(Rope{.scaling = s}, 64).multiplier; };
    const double ln40 = std::log(8.0) + std::log(5.0);
    EXPECT_DOUBLE_EQ(multiplier(), 1 + ln40 / 10);
    s.mscale = 0.5;
    EXPECT_DOUBLE_EQ(multiplier(), 1 + ln40 / 10) << "one alone counts for nothing";
    s.mscale_all_dim = 0.25;
    EXPECT_DOUBLE_EQ(multiplier(), (20 + ln40) / (20 + ln40 / 2));
    s.mscale = 0;
    EXPECT_DOUBLE_EQ(multiplier(), 1 + ln40 / 10) << "0 counts as not set";
    s.attention_factor = 0.75;
    EXPECT_EQ(multiplier(), 0.75);
    s = {.kind = Kind::yarn, .factor = 1, .original_max_position = 4096, .mscale = 2, .mscale_all_dim = 1};
    EXPECT_EQ(multiplier(), 1) << "nothing is stretched";
}

TEST(RopeFrequencies, Longrope) {
    Rope rope{.scaling = {.kind = Kind::longrope,
                          .factor = 4,
                          .original_max_position = 32,
                          .short_factor = {1, 1.1, 1.25, 1.5},
                          .long_factor = {1, 2, 6.5, 20}}};
    for (const auto& [longest, factors] :
         {std::pair{std::int64_t{32}, rope.scaling.short_factor}, {std::int64_t{33}, rope.scaling.long_factor}}) {
        expect_frequencies(rope, 8, longest, [&](std::int64_t i) {
            return base(10000, 8, i) / factors[static_cast<std::size_t>(i)];
        });
    }
    EXPECT_DOUBLE_EQ(rope_frequencies(rope, 8).multiplier, std::sqrt(1.4));  // 4 = 32^(2/5)
    rope.scaling.attention_factor = 1.19;
    EXPECT_EQ(rope_frequencies(rope, 8).multiplier, 1.19);
    rope.scaling.attention_factor.reset();
    rope.scaling.factor = 1;
    EXPECT_EQ(rope_frequencies(rope, 8).multiplier, 1);
}

TEST(RopeFrequencies, ExplicitOnesAndDivisors) {
    EXPECT_EQ(rope_frequencies(Rope{.frequencies = {1, 0.5, 0}}, 6).frequencies, (std::vector<double>{1, 0.5, 0}));
    const Rope rope{.scaling = {.kind = Kind::linear, .factor = 2}, .frequencies = {1, 0.5}, .divisors = {1, 8}};
    EXPECT_EQ(rope_frequencies(rope, 4).frequencies, (std::vector<double>{0.5, 0.03125}));
}

// A layer keeps two tables of longrope and one of dynamic scaling, however the length grows.
TEST(Rotation, TablesDoNotGrowWithTheLength) {
    const Rope dynamic{.scaling = {.kind = Kind::dynamic, .factor = 2, .max_position = 64}};
    const Rotation one(dynamic, 16);
    EXPECT_NE(one.table(0), nullptr);
    EXPECT_EQ(one.table(64), one.table(0));
    EXPECT_EQ(one.table(65), nullptr);
    const Rope longrope{.scaling = {.kind = Kind::longrope,
                                    .factor = 4,
                                    .original_max_position = 32,
                                    .short_factor = {1, 2},
                                    .long_factor = {1, 3}}};
    const Rotation two(longrope, 4);
    EXPECT_EQ(two.table(32), two.table(1));
    EXPECT_NE(two.table(33), two.table(32));
    EXPECT_EQ(two.table(1 << 20), two.table(33));
}

// All rows of a call turn by the frequencies of its longest position, here in a batch.
TEST(Rotation, ReckonsWithTheLargestPosition) {
    const Rope rope{.scaling = {.kind = Kind::dynamic, .factor = 2, .max_position = 4}};
    const std::int64_t positions[] = {0, 1, 2, 3, 8, 9};
    for (const KernelTable* table : test_tables()) {
        std::vector<float> x(2 * 3 * 4, 1.0f), y = x, z = x;
        const ConstTensorView given(positions, DType::i64, {2, 3});
        rotate(*table, {x.data(), DType::f32, {2, 3, 1, 4}}, Rotation(rope, 4), {.given = given}, {});
        rotate(*table, {y.data(), DType::f32, {2, 3, 1, 4}}, Rotation(rope, 4), {.given = given, .longest = 10},
               {});
        rotate(*table, {z.data(), DType::f32, {2, 3, 1, 4}}, Rotation(rope, 4), {.given = given, .longest = 4},
               {});
        EXPECT_EQ(x, y);
        EXPECT_NE(x, z);
    }
}

// ---- every rule -----------------------------------------------------------------------------------------------

const double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

void expect_bad(const Rope& rope, const std::string& words, std::int64_t head_dim = 8) {
    expect_refused([&] { check_rope(rope, head_dim, "here"); }, words);
    expect_refused([&] { Rotation(rope, head_dim, "there"); }, "there: ");
    expect_refused([&] { rope_frequencies(rope, head_dim); }, "rope_frequencies: ");
}

TEST(CheckRope, Layout) {
    EXPECT_NO_THROW(check_rope(Rope{.width = 6, .offset = 1}, 7, "here"));
    expect_bad(Rope{}, "width 7 must be even", 7);
    expect_bad(Rope{.width = 3}, "width 3 must be even");
    expect_bad(Rope{.offset = 1}, "width 7 must be even");
    expect_bad(Rope{.width = -2}, "rope.width is -2");
    expect_bad(Rope{.width = 10}, "leaves the head, which has 8 columns");
    expect_bad(Rope{.width = 6, .offset = 4}, "width 6 from column 4");
    expect_bad(Rope{.offset = 8}, "rope.offset is 8");
    expect_bad(Rope{.offset = -1}, "rope.offset is -1");
    expect_bad(Rope{.width = std::numeric_limits<std::int64_t>::max() - 1, .offset = 4}, "leaves the head");
    expect_bad(Rope{.pairs = static_cast<Rope::Pairs>(7)}, "no Rope::Pairs");
    expect_bad(Rope{}, "width 0", 0);
}

TEST(CheckRope, ThetaAndLists) {
    for (const double theta : {0.0, -1.0, kNan, kInf}) expect_bad(Rope{.theta = theta}, "rope.theta is ");
    expect_bad(Rope{.frequencies = {1, 2, 3}}, "rope.frequencies has 3 numbers, expected width / 2 = 4");
    expect_bad(Rope{.frequencies = {1, 2, 3, kNan}}, "rope.frequencies holds nan");
    expect_bad(Rope{.frequencies = {1, 2, 3, -1}}, "rope.frequencies holds -1");
    expect_bad(Rope{.divisors = {1}}, "rope.divisors has 1 numbers");
    expect_bad(Rope{.divisors = {1, 1, 1, 0}}, "rope.divisors holds 0");
    for (const Kind kind : {Kind::dynamic, Kind::dynamic_alpha, Kind::yarn}) {
        const RopeScaling s{.kind = kind, .factor = 2, .alpha = 2, .max_position = 9, .original_max_position = 9};
        expect_bad(Rope{.scaling = s, .frequencies = {1, 1, 1, 1}}, "exclude dynamic and yarn");
    }
}

TEST(CheckRope, Scaling) {
    const std::vector<double> ones(4, 1.0);
    const auto with = [&](Kind kind, auto change) {
        RopeScaling s{.kind = kind,
                      .factor = 2,
                      .alpha = 2,
                      .max_position = 64,
                      .original_max_position = 64,
                      .short_factor = ones,
                      .long_factor = ones};
        EXPECT_NO_THROW(check_rope(Rope{.scaling = s}, 8, "here"));
        change(s);
        return Rope{.scaling = s};
    };
    for (const Kind kind : {Kind::linear, Kind::dynamic, Kind::llama3, Kind::yarn, Kind::longrope}) {
        for (const double factor : {0.0, -2.0, kNan, kInf}) {
            expect_bad(with(kind, [&](RopeScaling& s) { s.factor = factor; }), "rope.scaling.factor is ");
        }
    }
    for (const Kind kind : {Kind::llama3, Kind::yarn, Kind::longrope}) {
        expect_bad(with(kind, [](RopeScaling& s) { s.original_max_position = 0; }), "original_max_position is 0");
    }
    expect_bad(with(Kind::dynamic, [](RopeScaling& s) { s.max_position = 0; }), "max_position is 0");
    expect_bad(with(Kind::dynamic_alpha, [](RopeScaling& s) { s.alpha = -1; }), "alpha is -1");
    expect_bad(with(Kind::llama3, [](RopeScaling& s) { s.low_freq_factor = 0; }), "low_freq_factor is 0");
    expect_bad(with(Kind::llama3, [](RopeScaling& s) { s.high_freq_factor = kNan; }), "high_freq_factor is nan");
    expect_bad(with(Kind::llama3, [](RopeScaling& s) { s.low_freq_factor = 5; }), "at most high_freq_factor = 4");
    expect_bad(with(Kind::yarn, [](RopeScaling& s) { s.beta_fast = 0; }), "beta_fast is 0");
    expect_bad(with(Kind::yarn, [](RopeScaling& s) { s.beta_slow = -1; }), "beta_slow is -1");
    expect_bad(with(Kind::yarn, [](RopeScaling& s) { s.beta_slow = 33; }), "at most beta_fast = 32");
    expect_bad(with(Kind::yarn, [](RopeScaling& s) { s.mscale = -1; }), "mscale is -1");
    expect_bad(with(Kind::yarn, [](RopeScaling& s) { s.mscale_all_dim = kNan; }), "mscale_all_dim is nan");
    Rope unit_theta = with(Kind::yarn, [](RopeScaling&) {});
    unit_theta.theta = 1;
    expect_bad(unit_theta, "expected above 1");
    expect_bad(with(Kind::longrope, [](RopeScaling& s) { s.short_factor.pop_back(); }),
               "scaling.short_factor has 3 numbers");
    expect_bad(with(Kind::longrope, [](RopeScaling& s) { s.long_factor.clear(); }),
               "scaling.long_factor has 0 numbers");
    expect_bad(with(Kind::longrope, [](RopeScaling& s) { s.long_factor[2] = -1; }),
               "scaling.long_factor holds -1");
    expect_bad(with(Kind::longrope, [](RopeScaling& s) { s.original_max_position = 1; }), "give attention_factor");
    for (const double factor : {0.0, -1.0, kNan, kInf}) {
        expect_bad(with(Kind::none, [&](RopeScaling& s) { s.attention_factor = factor; }), "attention_factor is ");
    }
    expect_bad(Rope{.scaling = {.kind = static_cast<Kind>(99), .factor = 1}}, "no RopeScaling::Kind");
}

TEST(Rotate, RefusesWhatDoesNotFit) {
    float x[48] = {}, rows[12] = {};
    const TensorView heads(x, DType::f32, {1, 2, 3, 8});
    const std::int64_t positions[] = {0, 3, 1, 1};
    const ConstTensorView given(positions, DType::i64, {2}), table(rows, DType::f32, {3, 4});
    expect_refused([&] { rotate({x, DType::f32, {6, 8}}, Rope{}); }, "[B,T,N,D]");
    expect_refused([&] { rotate({x, DType::f64, {1, 2, 3, 8}}, Rope{}); }, "bf16");
    expect_refused([&] { rotate({x, DType::f32, {1, 2, 3, 8}, {48, 24, 1, 3}}, Rope{}); }, "innermost stride");
    expect_refused([&] { rotate({nullptr, DType::f32, {1, 2, 3, 8}}, Rope{}); }, "null address");
    expect_refused([&] { rotate(heads, Rope{.theta = 0}); }, "theta");
    expect_refused([&] { rotate(heads, Rope{}, {}, -1); }, "longest is -1");
    expect_refused(
        [&] {
            rotate(heads, Rope{}, {positions, DType::i64, {3}});
        },
        "expected i32 or i64 [1, 2] or [2]");
    expect_refused([&] { rotate(heads, Rope{}, {positions, DType::i64, {2, 2}}); }, "expected i32 or i64");
    expect_refused([&] { rotate(heads, Rope{}, {rows, DType::f32, {2}}); }, "expected i32 or i64");
    const ConstTensorView two = table.slice(0, 0, 2), narrow(rows, DType::f32, {2, 3});
    EXPECT_NO_THROW(rotate(heads, Rope{}, RopeTables{two, two}));
    expect_refused([&] { rotate(heads, Rope{}, RopeTables{two, {}}); }, "the table sin");
    expect_refused([&] { rotate(heads, Rope{}, RopeTables{narrow, narrow}); }, "expected R/2 = 4 columns");
    expect_refused([&] { rotate(heads, Rope{}, RopeTables{table, table}); }, "a row for each token, [2, 4]");
    expect_refused([&] { rotate(heads, Rope{}, RopeTables{table, two}, given); }, "one shape");
    expect_refused(
        [&] {
            rotate(heads, Rope{}, RopeTables{table, table}, given);
        },
        "token 1 of sequence 0 stands at position 3, but the tables have rows 0 .. 2");
    expect_refused([&] { rotate(heads, Rope{.width = 3}, RopeTables{two, two}); }, "must be even");
    for (const float number : x) EXPECT_EQ(number, 0) << "memory was touched";
}

}  // namespace
}  // namespace headwise
