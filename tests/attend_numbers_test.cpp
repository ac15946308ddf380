// Hostile numbers: what NaN, Inf, huge and tiny operands do, and what they must not do.
#include "attend_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendNumbersTest : public IsaTest {
protected:
    static void expect_both(const AttendInputs& in) {
        for (const Path path : {Path::direct, Path::packed}) expect_matches(table(), in, {.path = path});
    }
};

const float* row_of(const Result& result, std::int64_t t) {
    return static_cast<const float*>(head_row(ConstTensorView(result.out.view), 0, t, 0));
}

// Scores that rise, fall, or peak in one lane: the reference of the softmax moves, or must not.
TEST_P(AttendNumbersTest, RisingAndFallingScores) {
    const std::int64_t S = 600;
    for (const double slope : {1.0, -1.0, 30.0, -30.0}) {
        Operands x({.T = 15, .S = S, .H = 2, .G = 1, .D = 4, .Dv = kProbeColumns});
        x.q.fill([](auto, auto, auto, std::int64_t d) { return d == 0 ? 1.0 : 0.0; });
        x.k.fill([&](auto, std::int64_t t, auto, auto) { return slope * static_cast<double>(t / 64); });
        AttendInputs in = x.inputs();
        in.scale = 1;
        expect_both(in);
        in.mask = causal();
        expect_both(in);
    }
}

TEST_P(AttendNumbersTest, OneKeyWinsExactly) {
    for (const std::int64_t S : {1, 2, 127, 128, 129, 259}) {
        for (const std::int64_t winner : {std::int64_t{0}, S / 2, S - 1}) {
            Operands x({.T = 13, .S = S, .D = 3, .Dv = 5});
            x.q.fill([](auto...) { return 100.0; });
            x.k.fill([&](auto, std::int64_t t, auto, auto) { return t == winner ? 100.0 : -100.0; });
            for (const Path path : {Path::direct, Path::packed}) {
                const Result result(table(), x.inputs(), {.path = path});
                const auto* v = static_cast<const float*>(head_row(ConstTensorView(x.v.view), 0, winner, 0));
                for (std::int64_t t = 0; t < 13; ++t)
                    EXPECT_EQ(std::memcmp(row_of(result, t), v, 5 * sizeof(float)), 0);
            }
        }
    }
}

TEST_P(AttendNumbersTest, LargeLogits) {
    for (const double sd : {30.0, 1e4}) {
        Operands x({.T = 20, .S = 200, .D = 64, .Dv = 8}, Layout::bthd, 9);
        std::mt19937 engine(2);
        std::normal_distribution<double> normal(0, sd);
        x.q.fill([&](auto...) { return normal(engine); });
        expect_both(x.inputs());
    }
    Operands x({.T = 20, .S = 200, .D = 2, .Dv = 8});  // about 1e4, spread 1
    x.q.fill([](auto...) { return 100.0; });
    x.k.fill([](auto, std::int64_t t, auto, auto) { return 100.0 + static_cast<double>(t % 11) / 2000; });
    AttendInputs in = x.inputs();
    in.scale = 1;
    expect_both(in);
    // Finite in f32, but not after a multiplication by log2(e).
    x.q.fill([](auto, auto, auto, std::int64_t d) { return d == 0 ? 1.8e19 : 0.0; });
    x.k.fill([](auto, std::int64_t t, auto, auto) { return t == 7 ? 1.6e19 : -1.6e19; });
    in = x.inputs();
    in.scale = 1;
    for (const Path path : {Path::direct, Path::packed}) {
        const Result result(table(), in, {.path = path});
        const auto* v = static_cast<const float*>(head_row(ConstTensorView(x.v.view), 0, 7, 0));
        EXPECT_EQ(std::memcmp(row_of(result, 0), v, 8 * sizeof(float)), 0);
    }
}

TEST_P(AttendNumbersTest, TinyOperands) {
    Operands x({.T = 14, .S = 50, .D = 8, .Dv = 8});
    x.q.fill([](auto...) { return 1e-20; });
    x.k.fill([](auto, std::int64_t t, auto, auto) { return t % 2 == 0 ? 1e-22 : -1e-22; });
    expect_both(x.inputs());
    // Values in the denormals are kept, not flushed; what the bound forgives is one step of theirs.
    x.v.fill([](auto, auto, auto, std::int64_t c) { return 1e-40 * static_cast<double>(c + 1); });
    const Result result(table(), x.inputs());
    for (int c = 0; c < 8; ++c) EXPECT_NEAR(row_of(result, 3)[c], 1e-40 * (c + 1), 1e-43);
}

// f16 operands whose product is beyond f16: scores are f32.
TEST_P(AttendNumbersTest, ProductsBeyondHalfPrecision) {
    Operands x({.T = 14, .S = 50, .D = 4, .Dv = 8, .dtype = DType::f16});
    x.q.fill([](auto...) { return 300.0; });
    x.k.fill([](auto, std::int64_t t, auto, auto) { return 300.0 + static_cast<double>(t % 4); });
    expect_both(x.inputs());
}

TEST_P(AttendNumbersTest, NothingHiddenReachesTheOutput) {
    const std::int64_t T = 40, S = 280;
    for (const double poison :
         {static_cast<double>(kNaN), static_cast<double>(kInf), -static_cast<double>(kInf)}) {
        for (const bool tensor : {false, true}) {
            Operands x({.T = T, .S = S, .H = 2, .G = 1, .D = 20, .Dv = 20});
            Tensor some(DType::boolean, {T, S});
            for (std::int64_t i = 0; i < T * S; ++i) some.data<std::uint8_t>()[i] = i % S % 5 != 2;
            for (std::int64_t t = 0; t < S; ++t) {
                if (tensor ? t % 5 != 2 : t < 250) continue;
                for (int d = 0; d < 20; ++d) x.k.set(0, t, 0, d, poison), x.v.set(0, t, 0, d, poison);
            }
            const std::int64_t length[] = {250};
            AttendInputs in = x.inputs();
            in.mask = tensor ? keep(some) : key_lengths(ConstTensorView(length, DType::i64, {1}));
            expect_both(in);
            in.mask = in.mask & causal();
            expect_both(in);
        }
    }
}

// NaN and Inf that are attended reach the rows that attend them, and only those.
TEST_P(AttendNumbersTest, AttendedNaNReachesItsRowsOnly) {
    const std::int64_t T = 30, S = 160;
    for (const float poison : {kNaN, kInf}) {
        for (int where = 0; where < 3; ++where) {
            Operands x({.T = T, .S = S, .H = 2, .G = 1, .D = 12, .Dv = 12});
            x.q.fill([](auto, auto, auto, std::int64_t d) { return d == 0 ? 1.0 : 0.25; });
            if (where == 0) x.q.set(0, 9, 1, 0, poison);
            if (where == 1) x.k.set(0, 140, 0, 0, poison);
            if (where == 2) x.v.set(0, 140, 0, 7, poison);
            AttendInputs in = x.inputs();
            in.mask = causal();
            SCOPED_TRACE(text(poison, " in operand ", where));
            expect_both(in);
        }
    }
}

TEST_P(AttendNumbersTest, InfinityInAValueOfNoWeight) {
    Operands x({.T = 20, .S = 140, .D = 2, .Dv = 4});
    x.q.fill([](auto...) { return 10.0; });
    x.k.fill([](auto, std::int64_t t, auto, auto) { return t == 0 ? 100.0 : -100.0; });
    x.v.set(0, 130, 0, 1, kInf);
    for (const Path path : {Path::direct, Path::packed}) {
        const Result result(table(), x.inputs(), {.path = path});
        EXPECT_FALSE(std::isfinite(row_of(result, 5)[1]));
        EXPECT_TRUE(std::isfinite(row_of(result, 5)[0]));
    }
}

TEST_P(AttendNumbersTest, ScoresOfMinusInfinityByArithmetic) {
    const std::int64_t S = 260;
    for (const bool all : {false, true}) {  // some keys, or all: then no softmax exists, though keys are seen
        Operands x({.T = 14, .S = S, .D = 2, .Dv = 4});
        x.q.fill([](auto...) { return 1.0; });
        x.k.fill([&](auto, std::int64_t t, auto, auto) { return all || t < 200 ? -kInf : 0.5; });
        expect_both(x.inputs());
    }
}

TEST_P(AttendNumbersTest, FloatingPointEnvironmentIsNotChanged) {
    const volatile double tiny = 1e-310;
    const Operands x({.T = 60, .S = 60});
    const Result result(table(), x.inputs());
    EXPECT_NE(tiny / 2, 0.0);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendNumbersTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
