// The score pipeline: softcap, temperature, biases by position, sinks, dropout, gates; each alone, with numbers that show
// where it stands in the order.
#include "attend/philox.h"
#include "attend_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendRulesTest : public IsaTest {
protected:
    static void expect_both(const AttendInputs& in) {
        for (const Path path : {Path::direct, Path::packed}) expect_matches(table(), in, {.path = path});
        EXPECT_TRUE(bytes_of(Result(table(), in, {.path = Path::direct})) ==
                    bytes_of(Result(table(), in, {.path = Path::packed})));
    }
};

ConstTensorView floats(const std::vector<float>& values) {
    return ConstTensorView(values.data(), DType::f32, {static_cast<std::int64_t>(values.size())});
}

// cap * tanh(s / cap) to 4 units of 2^-24, from denormals to infinity.
TEST_P(AttendRulesTest, CapIsPreciseEverywhere) {
    for (const float cap : {1e-30f, 0.5f, 1.0f, 50.0f, 3e38f}) {
        std::vector<float> s;
        for (double x = 1e-9; x < 30; x *= 1.0071) {
            s.push_back(static_cast<float>(x * cap)), s.push_back(static_cast<float>(-x * cap));
        }
        s.resize(s.size() / kKeyTile * kKeyTile);
        for (std::size_t first = 0; first < s.size(); first += kKeyTile) {
            std::vector<float> p(s.begin() + static_cast<std::ptrdiff_t>(first),
                                 s.begin() + static_cast<std::ptrdiff_t>(first) + kKeyTile);
            const std::int32_t begin = 0, end = kKeyTile;
            AttendTile tile{};
            tile.rows = 1, tile.keys = kKeyTile, tile.begin = &begin, tile.end = &end, tile.p = p.data();
            table().attend.cap_scores(tile, cap);
            for (std::size_t n = 0; n < kKeyTile; ++n) {
                const double want = cap * std::tanh(static_cast<double>(s[first + n]) / cap);
                if (!std::isfinite(s[first + n]) || std::abs(s[first + n]) < 1e-37f) continue;
                ASSERT_LE(std::abs(p[n] - want), 4 * 0x1p-24 * std::abs(want)) << s[first + n] << " of " << cap;
            }
        }
    }
    std::vector<float> p(kKeyTile, 0.0f);
    p[0] = kInf, p[1] = -kInf, p[2] = kNaN, p[3] = 1e-45f;
    const std::int32_t begin = 0, end = kKeyTile;
    AttendTile tile{};
    tile.rows = 1, tile.keys = kKeyTile, tile.begin = &begin, tile.end = &end, tile.p = p.data();
    table().attend.cap_scores(tile, 7.0f);
    EXPECT_EQ(p[0], 7.0f);
    EXPECT_EQ(p[1], -7.0f);
    EXPECT_TRUE(std::isnan(p[2]));
    EXPECT_EQ(p[3], 1e-45f);
    EXPECT_EQ(p[4], 0.0f);
}

TEST_P(AttendRulesTest, CapComesBeforeWhatIsAdded) {
    const Operands x({.T = 20, .S = 200, .H = 2, .G = 1, .D = 16, .Dv = 9});
    Tensor added(DType::f32, {20, 200});
    for (std::int64_t i = 0; i < added.count(); ++i) added.data<float>()[i] = static_cast<float>(i % 23) - 11.0f;
    AttendInputs in = x.inputs();
    in.mask = bias(added) & causal(), in.softcap = 2, in.scale = 3;
    expect_both(in);
    in.scale = 1e-6;  // scores far below the cap
    expect_both(in);
    in.scale = 1e6;  // and far above
    expect_both(in);
}

TEST_P(AttendRulesTest, TemperatureOfEveryRow) {
    const Operands x({.B = 2, .T = 40, .S = 150, .H = 4, .G = 2, .D = 16, .Dv = 9});
    Tensor tau(DType::f32, {2, 80});
    for (std::int64_t i = 0; i < tau.count(); ++i) tau.data<float>()[i] = static_cast<float>(i % 13) / 4 - 1;
    AttendInputs in = x.inputs();
    in.tau = ConstTensorView(tau.view().data, DType::f32, {2, 40}, {80, 2});  // any strides
    expect_both(in);
    in.scale = -0.5, in.softcap = 3;
    expect_both(in);
    in.scale = 0;  // the mean of the visible values
    expect_both(in);
}

TEST_P(AttendRulesTest, BiasesByPosition) {
    const std::vector<float> slopes = {0.5f, -0.03125f, 0, 0.25f};
    Tensor curve(DType::f32, {4, 33});
    for (std::int64_t i = 0; i < curve.count(); ++i) curve.data<float>()[i] = static_cast<float>(i * i % 19) / 8;
    const Tensor offsets = integers(DType::i64, {-40, 1000});
    const Operands x({.B = 2, .T = 40, .S = 300, .H = 4, .G = 2, .D = 16, .Dv = 9});
    for (const Positions& positions : {Positions{}, Positions::top_left(), Positions::at(offsets)}) {
        AttendInputs in = x.inputs();
        in.positions = positions, in.mask = window(100, 20);
        in.alibi_slopes = floats(slopes);
        expect_both(in);
        in.distance_bias = {.table = curve.view(), .first = -20};
        expect_both(in);
        in.alibi_slopes = {};
        expect_both(in);
    }
    // In documents distances count from the start of their own.
    const Operands y({.T = 40, .S = 300, .H = 4, .G = 4, .D = 16, .Dv = 9});
    const Tensor queries = integers(DType::i32, {0, 11, 40}), keys = integers(DType::i32, {0, 140, 300});
    AttendInputs in = y.inputs();
    in.mask = documents(queries, keys) & causal(), in.alibi_slopes = floats(slopes);
    in.distance_bias = {.table = curve.view(), .first = -20};
    expect_both(in);
}

// A sink is counted once over any number of tiles and pieces, and q = 0 makes it a key that has no value.
TEST_P(AttendRulesTest, SinksJoinOnce) {
    const std::vector<float> sinks = {0.0f, 3.0f, -kInf, -30.0f};
    for (const std::int64_t S : {1, 128, 300, 2100}) {
        for (const std::int64_t T : {1, 12}) {
            Operands x({.T = T, .S = S, .H = 4, .G = 2, .D = 8, .Dv = 5});
            AttendInputs in = x.inputs();
            in.sinks = floats(sinks);
            expect_both(in);
            x.q.fill([](auto...) { return 0.0; });
            x.v.fill([](auto...) { return 1.0; });
            const Result result(table(), in);
            const auto n = static_cast<double>(S);
            EXPECT_NEAR(result.out.memory.data<float>()[0], n / (n + 1), 1e-6);
            EXPECT_NEAR(result.lse.data<float>()[0], std::log(n + 1), 1e-5);
            EXPECT_NEAR(result.out.memory.data<float>()[2 * 5], 1, 1e-6);  // no sink
        }
    }
}

TEST_P(AttendRulesTest, SinksWithoutKeysAndBeyondNumbers) {
    const std::vector<float> sinks = {2.5f, kNaN, kInf, 1000.0f};
    Operands x({.T = 3, .S = 5, .H = 4, .G = 4, .D = 4, .Dv = 2});
    AttendInputs in = x.inputs();
    in.sinks = floats(sinks), in.mask = causal();
    const std::int64_t offset = -1;
    in.positions = Positions::at(ConstTensorView(&offset, DType::i64, {1}));  // row 0 sees nothing
    for (const Path path : {Path::direct, Path::packed}) {
        const Result result(table(), in, {.path = path});
        const float* out = result.out.memory.data<float>();
        for (int c = 0; c < 8; ++c) EXPECT_EQ(out[c], 0.0f);
        EXPECT_EQ(result.lse.data<float>()[0], 2.5f);
        EXPECT_TRUE(std::isnan(result.lse.data<float>()[3]));
        for (int t = 1; t < 3; ++t) {
            EXPECT_TRUE(std::isfinite(out[t * 8]));
            EXPECT_TRUE(std::isnan(out[t * 8 + 2]) && std::isnan(out[t * 8 + 4]));
            EXPECT_EQ(out[t * 8 + 6], 0.0f);  // exp(-1000) of anything
            EXPECT_EQ(result.lse.data<float>()[9 + t], 1000.0f);
        }
    }
}

// The vectors that its authors publish with Random123.
TEST(Philox, KnownAnswers) {
    const struct {
        PhiloxWords counter;
        std::uint64_t key;
        std::array<std::uint32_t, 4> words;
    } cases[] = {
        {{{0, 0, 0, 0}}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{{~0u, ~0u, ~0u, ~0u}}, ~std::uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (const auto& known : cases) {
        const PhiloxWords got = philox(known.counter, known.key);
        const auto& c = known.counter.word;
        const auto reference =
            philox_words({c[0], c[1], c[2], c[3]},
                         {static_cast<std::uint32_t>(known.key), static_cast<std::uint32_t>(known.key >> 32)});
        EXPECT_EQ(reference, known.words);
        for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], known.words[i]);
    }
}

TEST_P(AttendRulesTest, DropoutByTheIndicesAlone) {
    const Operands x({.B = 2, .T = 40, .S = 300, .H = 4, .G = 2, .D = 16, .Dv = 9});
    for (const double p : {0.1, 0.5, 0.999}) {
        AttendInputs in = x.inputs();
        in.dropout = {.probability = p, .seed = 0x123456789abcdefull}, in.mask = causal();
        expect_both(in);
    }
    // The log-sum-exp is that of all weights.
    AttendInputs in = x.inputs(), plain = x.inputs();
    in.dropout = {.probability = 0.5, .seed = 3};
    const Result dropped(table(), in), whole(table(), plain);
    EXPECT_EQ(std::memcmp(dropped.lse.data<float>(), whole.lse.data<float>(), 2 * 4 * 40 * 4), 0);
}

TEST_P(AttendRulesTest, Gates) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        const Operands x({.B = 2, .T = 20, .S = 50, .H = 4, .G = 2, .D = 16, .Dv = 19, .dtype = dtype});
        for (const DType gate_type : {DType::f32, dtype}) {
            for (const bool elements : {false, true}) {
                Tensor gate(gate_type, elements ? std::vector<std::int64_t>{2, 20, 4, 19}
                                                : std::vector<std::int64_t>{2, 20, 4});
                for (std::int64_t i = 0; i < gate.count(); ++i) {
                    store_f64(gate.view().data, gate_type, i, static_cast<double>(i % 17) / 4 - 2);
                }
                AttendInputs in = x.inputs();
                in.gate = std::as_const(gate).view();
                for (const Path path : {Path::direct, Path::packed}) {
                    expect_matches(table(), in, {.out = dtype, .path = path});
                }
            }
        }
    }
}

TEST_P(AttendRulesTest, AGateOfNaNReachesNoEmptyRow) {
    const Operands x({.T = 3, .S = 4});
    Tensor gate(DType::f32, {1, 3, 1});
    for (int i = 0; i < 3; ++i) gate.data<float>()[i] = kNaN;
    AttendInputs in = x.inputs();
    const std::int64_t offset = -1;
    in.mask = causal(), in.gate = std::as_const(gate).view();
    in.positions = Positions::at(ConstTensorView(&offset, DType::i64, {1}));
    const Result result(table(), in);
    EXPECT_EQ(result.out.memory.data<float>()[0], 0.0f);
    EXPECT_TRUE(std::isnan(result.out.memory.data<float>()[8]));
    EXPECT_TRUE(std::isfinite(result.lse.data<float>()[1]));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendRulesTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
