// Keys in pieces of kSplitKeys: the same bits whether pieces are tasks or walked over in turn, and whatever holds them.
#include <algorithm>

#include "attend/rows.h"
#include "attend_cases.h"
#include "cache_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

// Small problems are named to run directly: attend() itself would not wake a thread for them.
class AttendSplitTest : public IsaTest {};

constexpr std::int64_t kLong = 2 * kSplitKeys + 300;

std::string bytes_of_part(const ConstTensorView& out, std::int64_t b, std::int64_t t, std::int64_t tokens) {
    return std::string(static_cast<const char*>(head_row(out, b, t, 0)),
                       static_cast<std::size_t>(tokens * out.stride(1)) * size_of(out.dtype));
}

TEST_P(AttendSplitTest, ThreadsAndPaths) {
    for (const std::int64_t G : {1, 3}) {
        const Operands x({.B = 2, .T = 3, .S = kLong, .H = 6, .G = G, .D = 8, .Dv = 12});
        for (const Mask& mask : {Mask{}, causal() & window(kSplitKeys, -1)}) {
            AttendInputs in = x.inputs();
            in.mask = mask;
            const std::string expected = bytes_of(Result(table(), in));
            for (const Path path : {Path::direct, Path::packed}) {
                for (const int threads : {1, 2, 3, 7}) {
                    ASSERT_EQ(expected,
                              bytes_of(Result(table(), in, {.path = path, .execution = {.threads = threads}})));
                }
            }
        }
    }
}

TEST_P(AttendSplitTest, AroundTheEdges) {
    for (const std::int64_t S : grid<std::int64_t>(
             {kSplitKeys - 1, kSplitKeys, kSplitKeys + 1, 2 * kSplitKeys, 2 * kSplitKeys + 1, kLong},
             {kSplitKeys, kSplitKeys + 1})) {
        const Operands x({.B = 1, .T = 2, .S = S, .H = 2, .G = 1, .D = 8, .Dv = 8});
        AttendInputs in = x.inputs();
        for (const Mask& mask : {causal(), causal() & window(S - kSplitKeys / 2, -1), window(10, 0)}) {
            in.mask = mask;
            for (const int threads : {1, 2})
                expect_matches(table(), in, {.path = Path::direct, .execution = {.threads = threads}});
        }
    }
}

// Scores that rise from piece to piece, and that fall: each piece, or none, makes the others small.
TEST_P(AttendSplitTest, RisingAndFallingScores) {
    for (const double step : {1.0, -1.0, 20.0, -20.0}) {
        Operands x({.B = 1, .T = 1, .S = kLong, .H = 1, .G = 1, .D = 1, .Dv = 8});
        x.q.fill([](auto...) { return 1.0; });
        x.k.fill([&](auto, std::int64_t t, auto...) { return step * static_cast<double>(t / kKeyTile); });
        for (const int threads : {1, 2})
            expect_matches(table(), x.inputs(), {.path = Path::direct, .execution = {.threads = threads}});
    }
}

// Pieces that a row does not see, at either end, leave no trace.
TEST_P(AttendSplitTest, PiecesThatNobodySees) {
    const Operands x({.B = 1, .T = 2, .S = 3 * kSplitKeys, .H = 2, .G = 1, .D = 8, .Dv = 8});
    Tensor some(DType::boolean, {3 * kSplitKeys});
    for (std::int64_t t = kSplitKeys + 100; t < kSplitKeys + 300; ++t) some.data<std::uint8_t>()[t] = 1;
    AttendInputs in = x.inputs();
    in.mask = keep(some);
    AttendInputs trimmed = in;
    trimmed.k = in.k.slice(1, 0, kSplitKeys + 300), trimmed.v = in.v.slice(1, 0, kSplitKeys + 300);
    trimmed.mask = keep(some.view().slice(0, 0, kSplitKeys + 300));
    expect_matches(table(), in);
    for (const int threads : {1, 2}) {
        EXPECT_EQ(bytes_of(Result(table(), in, {.path = Path::direct, .execution = {.threads = threads}})),
                  bytes_of(Result(table(), trimmed, {.path = Path::packed})));
    }
    std::fill_n(some.data<std::uint8_t>(), some.count(), std::uint8_t{0});
    const Result nothing(table(), in, {.path = Path::direct, .execution = {.threads = 2}});
    for (std::int64_t i = 0; i < 2 * 2 * 8; ++i) EXPECT_EQ(load_f64(nothing.out.view.data, DType::f32, i), 0.0);
    EXPECT_EQ(nothing.lse.data<float>()[0], -kInf);
}

// NaN of a key that is seen reaches its rows by way of any piece, and no other row.
TEST_P(AttendSplitTest, NaNInOnePiece) {
    for (const std::int64_t at : {std::int64_t{5}, kSplitKeys + 5, kLong - 2}) {
        Operands x({.B = 1, .T = 2, .S = kLong, .H = 2, .G = 2, .D = 8, .Dv = 8});
        x.k.set(0, at, 1, 3, kNaN);
        for (const int threads : {1, 2}) {
            const Result result(table(), x.inputs(), {.path = Path::direct, .execution = {.threads = threads}});
            for (std::int64_t i = 0; i < 32; ++i) {
                const double value = load_f64(result.out.view.data, DType::f32, i);
                ASSERT_EQ(std::isnan(value), i / 8 % 2 == 1) << i;
            }
        }
    }
}

// One sequence alone, and beside others of other lengths that decide what becomes a task.
TEST_P(AttendSplitTest, SequenceAloneAndInABatch) {
    const Operands x({.B = 3, .T = 1, .S = kLong, .H = 4, .G = 2, .D = 8, .Dv = 8});
    const std::int64_t lengths[] = {kLong, 3, kSplitKeys + 7};
    for (const CacheKind kind : kKinds) {
        KvCacheConfig config{
            .batch = 3, .kv_heads = 2, .key_dim = 8, .value_dim = 8, .capacity = kLong, .kind = kind};
        KvCache cache(config);
        cache.append(x.k.view, x.v.view, ConstTensorView(lengths, DType::i64, {3}));
        AttendInputs in;
        in.q = x.q.view, in.cache = &cache;
        const Result together(table(), in, {.path = Path::direct, .execution = {.threads = 3}});
        config.batch = 1;
        for (std::int64_t b = 0; b < 3; ++b) {
            KvCache alone(config);
            alone.append(x.k.view.slice(0, b, 1).slice(1, 0, lengths[b]),
                         x.v.view.slice(0, b, 1).slice(1, 0, lengths[b]));
            in.q = x.q.view.slice(0, b, 1), in.cache = &alone;
            for (const int threads : {1, 2}) {
                const Result single(table(), in, {.path = Path::direct, .execution = {.threads = threads}});
                EXPECT_EQ(bytes_of_part(together.out.view, b, 0, 1), bytes_of_part(single.out.view, 0, 0, 1));
            }
        }
    }
}

TEST_P(AttendSplitTest, WhateverHoldsTheKeys) {
    for (const std::int64_t T : {1, 40}) {
        const Operands x({.B = 1, .T = T, .S = kLong, .H = 2, .G = 1, .D = 8, .Dv = 8});
        const std::string expected = bytes_of(Result(table(), x.inputs()));
        for (const std::int64_t page : {1, 3, 16, 128, 200}) {
            for (const CacheKind kind : kKinds) {
                if (kind != CacheKind::paged && page != 1) continue;
                KvCacheConfig config{
                    .batch = 1, .kv_heads = 1, .key_dim = 8, .value_dim = 8, .capacity = kLong, .kind = kind};
                config.page_size = page;
                KvCache cache(config);
                cache.append(x.k.view, x.v.view);
                AttendInputs in;
                in.q = x.q.view, in.cache = &cache;
                for (const int threads : {1, 2}) {
                    ASSERT_EQ(
                        expected,
                        bytes_of(Result(table(), in, {.path = Path::direct, .execution = {.threads = threads}})))
                        << name_of_kind(kind) << ", pages of " << page;
                }
            }
        }
    }
}

// A prefill in one go, in chunks of any size, and token by token from anywhere on.
TEST_P(AttendSplitTest, PrefillInChunks) {
    const Operands x({.B = 1, .T = kLong, .S = kLong, .H = 2, .G = 1, .D = 4, .Dv = 4});
    AttendInputs whole = x.inputs();
    whole.mask = causal();
    const Result expected(table(), whole);
    for (const std::int64_t chunk : {61, 1000, 1024}) {
        KvCache cache({.batch = 1,
                       .kv_heads = 1,
                       .key_dim = 4,
                       .value_dim = 4,
                       .capacity = kLong,
                       .kind = CacheKind::paged,
                       .page_size = 80});
        for (std::int64_t at = 0, T = 0; at < kLong; at += T) {
            T = at > kLong - 200 ? 1 : std::min(chunk, kLong - at);
            cache.append(x.k.view.slice(1, at, T), x.v.view.slice(1, at, T));
            AttendInputs in;
            in.q = x.q.view.slice(1, at, T), in.cache = &cache, in.mask = causal();
            const Result part(table(), in, {.execution = {.threads = 2}});
            ASSERT_EQ(bytes_of_part(part.out.view, 0, 0, T), bytes_of_part(expected.out.view, 0, at, T))
                << "chunks of " << chunk << ", at " << at;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendSplitTest, every_isa(), isa_name);

// ---- states --------------------------------------------------------------------------------------------------

struct State {
    float max = -kInf, sum = 0, o[4] = {};
    RowStates view() { return {.max = &max, .sum = &sum, .o = o, .stride = 4}; }
    bool operator==(const State& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};

TEST(RowStatesTest, TheEmptyStateIsTheIdentity) {
    for (const State& some : {State{.max = -3.5f, .sum = 2.25f, .o = {1, -2, 1e-40f, 3e38f}},
                              State{.max = 1e38f, .sum = 1, .o = {0, 1, 2, 3}},
                              State{.max = -3e38f, .sum = 1, .o = {0, 1, 2, 3}}, State{}}) {
        State total = some, empty;
        fold_states(total.view(), empty.view(), 1);
        EXPECT_EQ(total, some);
        fold_states(empty.view(), State(some).view(), 1);
        EXPECT_EQ(empty, some);
    }
}

// +inf as the largest score, NaN sums and infinite values stay what they are.
TEST(RowStatesTest, NothingThatIsNotFiniteGetsLost) {
    const State fine{.max = 1, .sum = 1, .o = {1, 1, 1, 1}};
    for (const State& bad : {State{.max = kInf, .sum = kNaN, .o = {kNaN, kNaN, kNaN, kNaN}},
                             State{.max = -50, .sum = kNaN, .o = {kNaN, kNaN, kNaN, kNaN}},
                             State{.max = -kInf, .sum = kNaN, .o = {kNaN, kNaN, kNaN, kNaN}}}) {
        State a = fine, b = bad;
        fold_states(a.view(), State(bad).view(), 1);
        fold_states(b.view(), State(fine).view(), 1);
        EXPECT_TRUE(std::isnan(a.sum) && std::isnan(a.o[0]));
        EXPECT_TRUE(std::isnan(b.sum) && std::isnan(b.o[0]));
    }
    // An infinite value is not finite however small its weight is.
    State a = fine;
    fold_states(a.view(), State{.max = -300, .sum = 1, .o = {kInf, 1, 1, 1}}.view(), 1);
    EXPECT_FALSE(std::isfinite(a.o[0]));
    EXPECT_EQ(a.o[1], 1.0f);
}

}  // namespace
}  // namespace headwise::test
