// The reference itself, against numbers that can be worked out by hand.
#include "reference.h"

#include <gtest/gtest.h>

namespace headwise::test {
namespace {

TEST(Reference, TwoKeysByHand) {
    const double q[] = {2}, k[] = {0, 1}, v[] = {10, 20};
    AttendInputs in{.q = {q, DType::f64, {1, 1, 1, 1}},
                    .k = {k, DType::f64, {1, 2, 1, 1}},
                    .v = {v, DType::f64, {1, 2, 1, 1}},
                    .mask = {},
                    .positions = {},
                    .scale = 0.5};
    const auto all = reference<double>(in);  // scores 0 and 1
    EXPECT_NEAR(all.out[0], (10 + 20 * std::exp(1.0)) / (1 + std::exp(1.0)), 1e-14);
    EXPECT_NEAR(all.lse[0], std::log(1 + std::exp(1.0)), 1e-15);
    in.positions = Positions::top_left();
    in.mask.causal = true;  // only key 0
    EXPECT_EQ(reference<double>(in).out[0], 10);
    EXPECT_EQ(reference<double>(in).lse[0], 0);
    const std::int32_t none[] = {0};
    in.mask.key_lengths = ConstTensorView(none, DType::i32, {1});
    EXPECT_EQ(reference<double>(in).empty_rows, 1);
    EXPECT_EQ(reference<double>(in).out[0], 0);
}

TEST(Reference, VerdictCountsWhatIsNotWithinItsBound) {
    const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
    const float got[] = {1, nan, inf, 2, nan};
    const std::vector<double> expected = {1, 1, inf, 2.5, std::nan("")}, bound = {0, 1e9, 0, 0.25, 0};
    const Verdict verdict = judge<double>(ConstTensorView(got, DType::f32, {5}), expected, bound);
    EXPECT_EQ(verdict.bad, 2);
    EXPECT_EQ(verdict.worst_ratio, 2);
    EXPECT_EQ(verdict.first.substr(0, 10), "element 1:");
}

}  // namespace
}  // namespace headwise::test
