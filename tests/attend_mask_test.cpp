// What each row sees: every mask, alignment and path, by structural probes and on random numbers.
#include "attend_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendMaskTest : public IsaTest {
protected:
    static void expect_seen(const Shape& shape, const Mask& mask, const Positions& positions = {}) {
        test::expect_seen(table(), shape, mask, positions);
    }
};

Tensor random_keep(std::initializer_list<std::int64_t> sizes, double share, unsigned seed) {
    Tensor tensor(DType::boolean, sizes);
    std::mt19937 engine(seed);
    std::bernoulli_distribution draw(share);
    for (std::int64_t i = 0; i < tensor.count(); ++i) tensor.data<std::uint8_t>()[i] = draw(engine) ? 255 : 0;
    return tensor;
}

Tensor random_bias(DType dtype, std::initializer_list<std::int64_t> sizes, double hidden, unsigned seed) {
    Tensor tensor(dtype, sizes);
    std::mt19937 engine(seed);
    std::bernoulli_distribution hide(hidden);
    std::normal_distribution<double> normal;
    for (std::int64_t i = 0; i < tensor.count(); ++i) {
        store_f64(tensor.view().data, dtype, i, hide(engine) ? -kInf : normal(engine));
    }
    return tensor;
}

TEST_P(AttendMaskTest, CausalInEveryAlignment) {
    const Tensor offsets = integers(DType::i32, {-3, 120});
    for (const auto& [T, S] :
         {std::pair<std::int64_t, std::int64_t>{1, 140}, {7, 7}, {20, 140}, {140, 20}, {130, 130}}) {
        for (const Positions& positions : {Positions{}, Positions::top_left(), Positions::at(offsets)}) {
            expect_seen({.B = 2, .T = T, .S = S, .H = 2, .G = 1}, causal(), positions);
        }
    }
}

TEST_P(AttendMaskTest, Windows) {
    for (const auto& [left, right] : {std::pair{0, 0}, {5, 0}, {-1, 3}, {3, -1}, {130, 7}, {40, 200}, {-1, -1}}) {
        expect_seen({.T = 40, .S = 300, .H = 2, .G = 2}, window(left, right));
        expect_seen({.T = 40, .S = 300, .H = 2, .G = 2}, window(left, right) & causal(), Positions::top_left());
    }
    expect_seen({.T = 300, .S = 40}, window(10, 2), Positions::top_left());
}

TEST_P(AttendMaskTest, KeyLengths) {
    for (const DType dtype : {DType::i32, DType::i64}) {
        const Tensor lengths = integers(dtype, {0, 1, 127, 128, 129, 200});
        for (const std::int64_t T : {1, 9, 30}) {
            const Shape shape{.B = 6, .T = T, .S = 200, .H = 2, .G = 1};
            expect_seen(shape, key_lengths(lengths));
            expect_seen(shape, key_lengths(lengths) & causal());
        }
    }
    const Tensor every_other = integers(DType::i64, {3, -99, 8, -99});
    const ConstTensorView strided(every_other.view().data, DType::i64, {2}, {2});
    expect_seen({.B = 2, .T = 30, .S = 10}, key_lengths(strided));
}

// Positions are 64-bit numbers of the caller: nothing may overflow. The reference adds in 64 bits, too, and is given
// numbers that mean the same.
TEST_P(AttendMaskTest, PositionsFarAway) {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(), kLeast = -kMost - 1;
    const Tensor far = integers(DType::i64, {kMost, kLeast, -20, 500}),
                 near = integers(DType::i64, {1000, -1000, -20, 500});
    const Operands x({.B = 4, .T = 25, .S = 33, .Dv = kProbeColumns});
    const auto expect_same = [&](const Mask& mask, const Tensor& offsets, const Mask& same_mask) {
        AttendInputs in = x.inputs(), same = x.inputs();
        in.mask = mask, in.positions = Positions::at(offsets);
        same.mask = same_mask, same.positions = Positions::at(near);
        const Expected<double> expected = reference(same);
        for (const Path path : {Path::direct, Path::packed}) {
            const Result result(table(), in, {.path = path});
            EXPECT_EQ(judge(ConstTensorView(result.out.view), expected.out, expected.out_bound).first, "");
        }
    };
    for (const Mask& mask : {causal(), window(30, 0), window(-1, 5), window(10, -1)}) expect_same(mask, far, mask);
    expect_same(window(kMost, kMost), near, Mask{});
    expect_same(causal() & window(kMost, -1), near, causal());
    AttendInputs in = x.inputs();
    in.mask = window(kMost, kMost), in.positions = Positions::at(far);
    EXPECT_EQ(bytes_of(Result(table(), in, {.path = Path::direct})),
              bytes_of(Result(table(), in, {.path = Path::packed})));
}

TEST_P(AttendMaskTest, BooleanTensorsBroadcastFromTheRight) {
    const std::int64_t B = 2, H = 2, T = 30, S = 150;
    const Shape shape{.B = B, .T = T, .S = S, .H = H, .G = 1};
    const Tensor all = random_keep({B, H, T, S}, 0.5, 1), matrix = random_keep({T, S}, 0.5, 2),
                 heads = random_keep({H, T, S}, 0.5, 3), keys = random_keep({B, 1, 1, S}, 0.3, 4),
                 rows = random_keep({B, H, T, 1}, 0.5, 5), key_row = random_keep({S}, 0.5, 6),
                 scalar = random_keep({}, 1.0, 7), sparse = random_keep({T, S}, 0.01, 8);
    for (const Tensor* tensor : {&all, &matrix, &heads, &keys, &rows, &key_row, &scalar, &sparse}) {
        SCOPED_TRACE(tensor->view().describe());
        expect_seen(shape, keep(*tensor));
        expect_seen(shape, keep(*tensor) & causal() & window(100, 3), Positions::top_left());
    }
}

TEST_P(AttendMaskTest, TensorsOfAnyStride) {
    const std::int64_t H = 2, T = 20, S = 140;
    const Tensor turned = random_keep({S, T}, 0.5, 1), wide = random_keep({H, T, 2 * S}, 0.5, 2);
    expect_seen({.T = T, .S = S, .H = H}, keep(turned.view().swap_axes(0, 1)));
    const ConstTensorView every_other(wide.view().data, DType::boolean, {H, T, S}, {2 * T * S, 2 * S, 2});
    expect_seen({.T = T, .S = S, .H = H}, keep(every_other));
    // A size-1 axis may carry any stride, and a long axis the stride 0.
    const ConstTensorView odd(wide.view().data, DType::boolean, {1, H, T, S}, {std::int64_t{1} << 40, 0, S, 1});
    expect_seen({.B = 3, .T = T, .S = S, .H = H}, keep(odd));
    const Tensor bias_turned = random_bias(DType::f32, {S, T}, 0.2, 3);
    expect_seen({.T = T, .S = S, .H = H}, bias(bias_turned.view().swap_axes(0, 1)));
}

TEST_P(AttendMaskTest, AdditiveTensors) {
    const std::int64_t B = 2, H = 2, T = 30, S = 150;
    const Shape shape{.B = B, .T = T, .S = S, .H = H, .G = 1};
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        const Tensor all = random_bias(dtype, {B, H, T, S}, 0.3, 1),
                     keys = random_bias(dtype, {B, 1, 1, S}, 0.3, 2),
                     heads = random_bias(dtype, {H, 1, 1}, 0.0, 3), some = random_keep({T, S}, 0.7, 4);
        for (const Tensor* tensor : {&all, &keys, &heads}) {
            SCOPED_TRACE(tensor->view().describe());
            expect_seen(shape, bias(*tensor));
            expect_seen(shape, bias(*tensor) & keep(some) & causal());
        }
    }
}

TEST_P(AttendMaskTest, LowestFiniteBiasIsANumberAndNoMask) {
    const std::int64_t T = 20, S = 140;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
        Tensor tensor(dtype, {T, S});
        const double lowest = dtype == DType::f32    ? std::numeric_limits<float>::lowest()
                              : dtype == DType::bf16 ? -0x1.fep127
                                                     : std::numeric_limits<double>::lowest();
        for (std::int64_t i = 0; i < T * S; ++i) {  // row 0 sees nothing but lowest, the others half of the keys
            store_f64(tensor.view().data, dtype, i, i < S || i % 2 == 0 ? lowest : 0.0);
        }
        Operands x({.T = T, .S = S, .Dv = kProbeColumns});
        x.make_probe();
        AttendInputs in = x.inputs();
        in.mask = bias(tensor);
        for (const Path path : {Path::direct, Path::packed}) {
            if (dtype != DType::f64) {
                expect_matches(table(), in, {.path = path, .score_without_bias = true});
                continue;
            }
            // Row 0 has an lse that f32 cannot hold, but an output.
            const Expected<double> expected = reference(in, {.score_without_bias = true});
            const Result result(table(), in, {.path = path});
            EXPECT_EQ(judge(ConstTensorView(result.out.view), expected.out, expected.out_bound).first, "");
        }
    }
}

TEST_P(AttendMaskTest, EmptyRowsAreZeroWithMinusInfinity) {
    const std::int64_t T = 20, S = 140;
    Tensor keep_rows(DType::boolean, {T, S}), bias_rows(DType::f32, {T, S});
    for (std::int64_t i = 0; i < T * S; ++i) {
        keep_rows.data<std::uint8_t>()[i] = i / S % 3 != 0;
        bias_rows.data<float>()[i] = i / S % 3 == 0 ? -kInf : 0.0f;
    }
    const Tensor none = integers(DType::i32, {0});
    for (const Mask& mask : {keep(keep_rows), bias(bias_rows), key_lengths(none)}) {
        for (const Path path : {Path::direct, Path::packed}) {
            Operands x({.T = T, .S = S});
            x.v.set(0, 3, 0, 1, kNaN);  // an attended NaN stays out of the empty rows
            AttendInputs in = x.inputs();
            in.mask = mask;
            const Result result(table(), in, {.path = path});
            for (std::int64_t t = 0; t < T; t += 3) {
                EXPECT_EQ(result.lse.data<float>()[t], -kInf);
                for (int c = 0; c < 8; ++c) EXPECT_EQ(result.out.memory.data<float>()[t * 8 + c], 0.0f);
            }
            expect_matches(table(), in, {.path = path});
        }
    }
}

TEST_P(AttendMaskTest, F64TakesEveryMask) {
    const Tensor lengths = integers(DType::i32, {0, 13});
    const Tensor some = random_keep({9, 13}, 0.5, 1), added = random_bias(DType::f64, {3, 9, 13}, 0.3, 2);
    const Operands x({.B = 2, .T = 9, .S = 13, .H = 3, .G = 3, .dtype = DType::f64});
    AttendInputs in = x.inputs();
    in.mask = causal() & window(5, 0) & key_lengths(lengths) & keep(some) & bias(added);
    expect_matches<long double>(table(), in, {.out = DType::f64});
}

TEST(Mask, IntersectionTakesTheNarrowerWindow) {
    const Mask both = window(5, -1) & window(7, 2) & causal();
    EXPECT_EQ(both.window_left, 5);
    EXPECT_EQ(both.window_right, 2);
    EXPECT_TRUE(both.causal);
    const Tensor some = random_keep({1, 1}, 1, 1);
    EXPECT_THROW(keep(some) & keep(some), Error);
    EXPECT_THROW(window(-2, 0), Error);
}

// The chunk is the layer's, where its first token stands is the call's.
TEST(Mask, OriginsMayStandBesideTheChunkOfTheOtherSide) {
    const Tensor origins = integers(DType::i64, {4, 0});
    Mask call;
    call.chunk_origins = origins;
    for (const Mask& both : {chunked(8) & call, call & chunked(8)}) {
        EXPECT_EQ(both.chunk, 8);
        EXPECT_EQ(both.chunk_origins.data, origins.view().data);
    }
    EXPECT_THROW(chunked(8, origins) & call, Error);
    EXPECT_THROW(chunked(8, origins) & chunked(8), Error);
}

TEST(Mask, ChunkOriginsFarAwayCountModuloTheChunk) {
    const Tensor q(DType::f32, {2, 3, 1, 4}), k(DType::f32, {2, 5, 1, 4});
    Tensor v(DType::f32, {2, 5, 1, 1});
    for (std::int64_t i = 0; i < v.count(); ++i) v.data<float>()[i] = static_cast<float>(1 << i);
    const auto outputs = [&](std::int64_t first, std::int64_t second) {
        const Tensor origins = integers(DType::i64, {first, second});
        Tensor out(DType::f32, {2, 3, 1, 1});
        attend({.q = q, .k = k, .v = v, .mask = chunked(4, origins)}, {.out = out});
        return std::vector<float>(out.data<float>(), out.data<float>() + out.count());
    };
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();  // a multiple of 4
    EXPECT_EQ(outputs(kLeast, kLeast + 1), outputs(0, 1));
    EXPECT_EQ(outputs(kLeast + 3, std::numeric_limits<std::int64_t>::max()), outputs(3, 3));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendMaskTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
