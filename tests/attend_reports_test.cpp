// Kinds of public bug reports about attention libraries, each replayed as a test of its own.
#include <sys/mman.h>

#include "attend_cases.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendReportsTest : public IsaTest {
protected:
    static void expect_both(const AttendInputs& in, const std::string& what = {}) {
        SCOPED_TRACE(what);
        for (const Path path : {Path::direct, Path::packed}) expect_matches(table(), in, {.path = path});
    }
};

// Kind: NaN or Inf in keys that a mask hides turns up in the output, because a weight of 0 is multiplied with it.
TEST_P(AttendReportsTest, NaNInMaskedKeys) {
    Operands x({.B = 2, .T = 40, .S = 200, .H = 2, .G = 1, .D = 16, .Dv = 16});
    const Tensor starts = integers(DType::i32, {5, 130});
    for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t t = 0; t < (b == 0 ? 5 : 130); ++t)
            for (int d = 0; d < 16; ++d) x.k.set(b, t, 0, d, kNaN), x.v.set(b, t, 0, d, d % 2 == 0 ? kInf : kNaN);
    AttendInputs in = x.inputs();
    for (const Mask& mask :
         {key_starts(starts), key_starts(starts) & causal(), key_starts(starts) & window(9, 0, 3)}) {
        in.mask = mask;
        expect_both(in);
    }
}

// Kind: a published "window W" is off by one, W keys before the query instead of W keys with it.
TEST_P(AttendReportsTest, WindowOfWKeysHoldsWKeys) {
    constexpr std::int64_t kWindow = 7;
    Operands x({.T = 30, .S = 30});
    x.q.fill([](auto...) { return 0.0; });
    x.v.fill([](auto...) { return 1.0; });
    AttendInputs in = x.inputs();
    in.mask = causal() & window(kWindow - 1, 0);
    for (const Path path : {Path::direct, Path::packed}) {
        const Result result(table(), in, {.path = path});
        for (std::int64_t i = 0; i < 30; ++i) {  // lse of n equal scores 0 is ln n
            const double seen = std::exp(static_cast<double>(result.lse.data<float>()[i]));
            EXPECT_NEAR(seen, static_cast<double>(std::min(i + 1, kWindow)), 1e-4);
        }
    }
}

// Kind: a causal mask is anchored at the other corner where T and S differ.
TEST_P(AttendReportsTest, TopLeftAndBottomRight) {
    for (const auto& [T, S] : {std::pair<std::int64_t, std::int64_t>{3, 200}, {40, 130}, {130, 40}}) {
        Operands x({.T = T, .S = S, .Dv = kProbeColumns});
        x.make_probe();
        AttendInputs in = x.inputs();
        in.mask = causal();
        expect_both(in, "bottom right");
        in.positions = Positions::top_left();
        expect_both(in, "top left");
    }
}

// Kind: a first tile that is hidden whole leaves -inf - -inf = NaN, or a stale maximum, for the tiles behind it.
TEST_P(AttendReportsTest, FirstTileAllMasked) {
    Tensor some(DType::boolean, {40, 300}), added(DType::f32, {40, 300});
    for (std::int64_t i = 0; i < some.count(); ++i) {
        const bool shown = i % 300 >= 128 + i / 300;
        some.data<std::uint8_t>()[i] = shown, added.data<float>()[i] = shown ? 0.0f : -kInf;
    }
    const Operands x({.T = 40, .S = 300, .H = 2, .G = 1, .D = 16, .Dv = 16});
    AttendInputs in = x.inputs();
    for (const Mask& mask : {keep(some), bias(added), window(30, 0)}) {
        in.mask = mask;
        expect_both(in);
    }
}

// Kind: large but finite logits overflow once they are multiplied by log2(e), or differ so far that exp gives Inf.
TEST_P(AttendReportsTest, HugeLogits) {
    for (const double size : {1e5, 3e38}) {
        Operands x({.T = 20, .S = 150, .D = 1, .Dv = 8});
        x.q.fill([](auto...) { return 1.0; });
        x.k.fill([&](auto, std::int64_t t, auto, auto) {
            return t == 140 ? size : t % 2 == 0 ? -size : size / 2;
        });
        AttendInputs in = x.inputs();
        in.scale = 1;
        for (const Path path : {Path::direct, Path::packed}) {
            const Result result(table(), in, {.path = path});
            const auto* v = static_cast<const float*>(head_row(ConstTensorView(x.v.view), 0, 140, 0));
            for (int t = 0; t < 20; ++t) {
                EXPECT_EQ(std::memcmp(result.out.memory.data<float>() + t * 8, v, 8 * sizeof(float)), 0);
                EXPECT_EQ(result.lse.data<float>()[t], static_cast<float>(size));
            }
        }
    }
}

// Kind: f16 scores overflow before the scale makes them small.
TEST_P(AttendReportsTest, HalfOverflowsBeforeScaling) {
    Operands x({.T = 20, .S = 150, .D = 64, .Dv = 8, .dtype = DType::f16});
    x.q.fill([](auto...) { return 200.0; });
    x.k.fill([](auto, std::int64_t t, auto, auto) { return 200.0 + static_cast<double>(t % 3) / 8; });
    AttendInputs in = x.inputs();
    in.scale = 1e-4;
    for (const Path path : {Path::direct, Path::packed})
        expect_matches(table(), in, {.out = DType::f16, .path = path});
}

// Kind: the map from query to kv heads holds only for powers of two.
TEST_P(AttendReportsTest, GroupsOfOneToNine) {
    for (std::int64_t group = 1; group <= 9; ++group) {
        for (const std::int64_t G : {1, 3}) {
            Operands x({.T = 9, .S = 20, .H = G * group, .G = G, .Dv = kProbeColumns});
            x.make_probe();
            AttendInputs in = x.inputs();
            in.mask = causal();
            expect_both(in, text(group, " heads of ", G));
        }
    }
}

// Kind: the last keys of a number that is no multiple of the tile are left out, or read beyond.
TEST_P(AttendReportsTest, TailsOfKeyBlocks) {
    for (std::int64_t S = 1; S <= 2 * kKeyTile + 1;
         S += S < 20 || S % kKeyTile > 120 || S % kKeyTile < 2 ? 1 : 9) {
        Operands x({.T = 9, .S = S, .Dv = kProbeColumns});
        x.make_probe();
        expect_both(x.inputs(), text("S ", S));
    }
}

// Kind: offsets in 32 bits, where the strides of a batch or of keys go beyond 2^31 elements.
TEST_P(AttendReportsTest, StridesBeyond32Bits) {
    constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 64;  // elements between the two keys
    const auto bytes = static_cast<std::size_t>(kFar + 64) * sizeof(float);
    void* const memory =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) GTEST_SKIP() << "no address space for 8 GiB";
    auto* const data = static_cast<float*>(memory);
    for (int d = 0; d < 8; ++d) data[d] = 1, data[kFar + d] = 2;
    const Operands x({.T = 9, .S = 2, .D = 8, .Dv = 8});
    AttendInputs in = x.inputs();
    in.k = ConstTensorView(data, DType::f32, {1, 2, 1, 8}, {1, kFar, 1, 1});
    in.v = in.k;
    expect_both(in);
    munmap(memory, bytes);
}

// Kind: a broadcast mask is indexed by the stride of its axis of size 1.
TEST_P(AttendReportsTest, GarbageStridesOfBroadcastAxes) {
    const Tensor some = integers(DType::i64, {0x0101000101000101, 0x0100010001000001, 0x0101010101010101});
    const std::int64_t garbage = std::int64_t{1} << 45;
    const Operands x({.B = 3, .T = 20, .S = 24, .H = 2, .G = 1});
    AttendInputs in = x.inputs();
    in.mask =
        keep(ConstTensorView(some.view().data, DType::boolean, {1, 1, 1, 24}, {garbage, -garbage, 12345, 1}));
    expect_both(in);
}

// Kind: the newest key is hidden, so that a row's last tile ends with a hidden key or the row is empty.
TEST_P(AttendReportsTest, NewestKeyMaskedOut) {
    for (const std::int64_t S : {1, 2, 128, 129, 256}) {
        Tensor some(DType::boolean, {S});
        std::fill_n(some.data<std::uint8_t>(), S, std::uint8_t{1});
        some.data<std::uint8_t>()[S - 1] = 0;
        for (const std::int64_t T : {1, 40}) {
            Operands x({.T = T, .S = S, .Dv = kProbeColumns});
            x.make_probe();
            AttendInputs in = x.inputs();
            in.mask = keep(some) & causal();
            expect_both(in, text("T ", T, " S ", S));
        }
    }
}

// Kind: sequences of a batch with lengths 0, 3, 1 take each other's lengths, or the empty one gives NaN.
TEST_P(AttendReportsTest, UnevenLengths) {
    const Tensor lengths = integers(DType::i32, {0, 3, 1});
    const Tensor offsets = integers(DType::i32, {-4, -1, -3});  // the last row sees the last key of its own
    for (const std::int64_t T : {1, 4}) {
        Operands x({.B = 3, .T = T, .S = 3, .H = 4, .G = 2, .Dv = kProbeColumns});
        x.make_probe();
        AttendInputs in = x.inputs();
        in.mask = key_lengths(lengths);
        expect_both(in, "all keys");
        in.mask = in.mask & causal(), in.positions = Positions::at(offsets);
        expect_both(in, "causal");
    }
}

// Kind: padding on the left shifts causality, windows or chunks, or padding rows give NaN.
TEST_P(AttendReportsTest, PaddingOnTheLeft) {
    const Tensor starts = integers(DType::i32, {0, 3, 11});
    Operands x({.B = 3, .T = 12, .S = 12, .H = 2, .G = 1, .Dv = kProbeColumns});
    x.make_probe();
    AttendInputs in = x.inputs();
    for (const Mask& mask : {causal(), causal() & window(3, 0), causal() & chunked(4, starts)}) {
        in.mask = mask & key_starts(starts);
        expect_both(in);
    }
}

// Kind: the second chunk of a prefill is masked as if it were the first.
TEST_P(AttendReportsTest, SecondPrefillChunk) {
    const Operands x({.T = 60, .S = 60, .H = 2, .G = 1, .D = 16, .Dv = 16});
    AttendInputs whole = x.inputs();
    whole.mask = causal() & window(20, 0);
    const Result expected(table(), whole);
    for (const std::int64_t first : {1, 20, 33}) {
        AttendInputs chunk = whole;
        chunk.q = whole.q.slice(1, first, 60 - first);
        const Result got(table(), chunk);
        EXPECT_EQ(std::memcmp(got.out.memory.data<float>(), expected.out.memory.data<float>() + first * 2 * 16,
                              static_cast<std::size_t>((60 - first) * 2 * 16) * sizeof(float)),
                  0);
    }
}

// Kind: tree masks of speculative decoding, boolean over the newest keys, hide the context or show other branches.
TEST_P(AttendReportsTest, TreeOfDrafts) {
    const std::int64_t context = 130, drafts = 5, parent[] = {-1, 0, 0, 1, 2};
    Tensor tree(DType::boolean, {drafts, context + drafts});
    for (std::int64_t i = 0; i < drafts; ++i) {
        std::uint8_t* const row = tree.data<std::uint8_t>() + i * (context + drafts);
        std::fill_n(row, context, std::uint8_t{1});
        std::fill_n(row + context, drafts, std::uint8_t{0});
        for (std::int64_t n = i; n >= 0; n = parent[n]) row[context + n] = 1;
    }
    Operands x({.T = drafts, .S = context + drafts, .H = 4, .G = 2, .Dv = kProbeColumns});
    x.make_probe();
    AttendInputs in = x.inputs();
    in.mask = keep(tree);
    expect_both(in);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendReportsTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
