// The second pass: scores and weights are those of attend(), for any heads, rows, masks and whatever holds the keys.
#include <headwise/scores.h>

#include <algorithm>

#include "attend_cases.h"
#include "cache_cases.h"
#include "isas.h"

namespace headwise::test {
namespace {

// The public calls run on the table in force.
class ScoresTest : public IsaTest {
protected:
    void SetUp() override { set_isa(table().isa); }
    void TearDown() override { set_isa(""); }
};

const Shape kShape{.B = 2, .T = 37, .S = 300, .H = 6, .G = 2, .D = 17, .Dv = 9};

// Rules of every kind over kShape.
struct Case {
    Operands x;
    Tensor some{DType::boolean, {37, 300}}, added{DType::f32, {6, 1, 300}}, tau{DType::f32, {2, 37}};
    Tensor slopes{DType::f32, {6}}, sinks{DType::f32, {6}};

    explicit Case(DType dtype = DType::f32) : x(with(dtype)) {
        std::mt19937 engine(11);
        const auto draw = [&] { return static_cast<float>(engine() % 1000) / 500 - 1; };
        for (std::int64_t i = 0; i < some.count(); ++i) some.data<std::uint8_t>()[i] = engine() % 4 != 0;
        for (Tensor* tensor : {&added, &tau, &slopes, &sinks}) {
            for (std::int64_t i = 0; i < tensor->count(); ++i) tensor->data<float>()[i] = draw();
        }
    }
    static Shape with(DType dtype) {
        Shape shape = kShape;
        shape.dtype = dtype;
        return shape;
    }
    AttendInputs plain() const { return x.inputs(); }
    AttendInputs full() const {
        AttendInputs in = x.inputs();
        in.mask = causal() & window(200, -1, 3) & keep(some) & bias(added);
        in.softcap = 3, in.tau = tau, in.alibi_slopes = slopes, in.sinks = sinks;
        return in;
    }
};

Tensor scores_of(const AttendInputs& in, const ScoreRequest& request, const ConstTensorView& lse = {},
                 const Execution& execution = {.threads = 1}) {
    const std::int64_t H = request.heads < 0 ? in.q.size(2) - request.first_head : request.heads;
    const std::int64_t T = request.rows < 0 ? in.q.size(1) - request.first_row : request.rows;
    Tensor to(in.q.dtype == DType::f64 ? DType::f64 : DType::f32, {in.q.size(0), H, T, key_shape(in).S});
    for (std::int64_t i = 0; i < to.count(); ++i) store_f64(to.view().data, to.dtype(), i, kSentinel);
    attend_scores(in, lse, request, to, execution);
    return to;
}

double at(const Tensor& tensor, std::int64_t index) { return load_f64(tensor.view().data, tensor.dtype(), index); }

bool same_bits(const Tensor& a, const Tensor& b) {
    return a.count() == b.count() && std::memcmp(a.view().data, b.view().data,
                                                 static_cast<std::size_t>(a.count()) * size_of(a.dtype())) == 0;
}

// A row that sees one key alone has its score as lse: max + log(1). So the bits of scores can be seen from outside.
TEST_P(ScoresTest, SameBitsAsAttend) {
    Tensor one(DType::boolean, {37, 300});
    for (const bool rules : {false, true}) {
        const Case c;
        for (std::int64_t shift = 0; shift < 300; shift += 37) {
            std::fill_n(one.data<std::uint8_t>(), one.count(), std::uint8_t{0});
            for (std::int64_t i = 0; i < 37; ++i) one.data<std::uint8_t>()[i * 300 + (i + shift) % 300] = 1;
            AttendInputs in = rules ? c.full() : c.plain();
            in.mask = keep(one);
            if (rules) in.mask.bias = c.added;
            in.sinks = {};
            const Result result(table(), in);
            const Tensor masked = scores_of(in, {.kind = ScoreKind::masked});
            for (std::int64_t row = 0; row < 2 * 6 * 37; ++row) {
                for (std::int64_t t = 0; t < 300; ++t) {
                    const float s = masked.data<float>()[row * 300 + t];
                    ASSERT_EQ(s, t == (row % 37 + shift) % 300 ? result.lse.data<float>()[row] : -kInf);
                }
            }
        }
    }
}

TEST_P(ScoresTest, RawAndCapped) {
    const Case c;
    const AttendInputs in = c.full();
    const Tensor raw = scores_of(in, {.kind = ScoreKind::raw}),
                 capped = scores_of(in, {.kind = ScoreKind::capped});
    for (std::int64_t b = 0; b < 2; ++b)
        for (std::int64_t h = 0; h < 6; ++h)
            for (std::int64_t i = 0; i < 37; ++i)
                for (std::int64_t t = 0; t < 300; ++t) {
                    const double factor = c.tau.data<float>()[b * 37 + i] / std::sqrt(17.0);
                    double dot = 0, size = 0;
                    for (std::int64_t d = 0; d < 17; ++d) {
                        const double product = factor * load_f64(in.q.data, DType::f32, index4(in.q, b, i, h, d)) *
                                               load_f64(in.k.data, DType::f32, index4(in.k, b, t, h / 3, d));
                        dot += product, size += std::abs(product);
                    }
                    // Two roundings of q, and 17 of the chain, of at most 2^-24 of the sum of sizes each.
                    const double bound = 19 * 0x1p-24 * size;
                    const std::int64_t index = ((b * 6 + h) * 37 + i) * 300 + t;
                    ASSERT_LE(std::abs(at(raw, index) - dot), bound);
                    // tanh has a slope of at most 1; its own error is a few units of the last place of the cap.
                    ASSERT_LE(std::abs(at(capped, index) - 3 * std::tanh(dot / 3)), bound + 8 * 0x1p-24 * 3);
                }
}

// Weights are exp(masked - lse), sum up to one with the sink, and give the output when they meet the values.
TEST_P(ScoresTest, WeightsMakeTheOutput) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
        const Case c(dtype);
        const AttendInputs in = c.full();
        const Result result(table(), in, {.out = dtype == DType::f64 ? DType::f64 : DType::f32});
        const Tensor weights = scores_of(in, {}, result.lse), masked = scores_of(in, {.kind = ScoreKind::masked});
        EXPECT_TRUE(same_bits(weights, scores_of(in, {})));  // with an lse of its own
        const Expected<double> expected = reference<double>(in);
        for (std::int64_t b = 0; b < 2; ++b)
            for (std::int64_t h = 0; h < 6; ++h)
                for (std::int64_t i = 0; i < 37; ++i) {
                    const std::int64_t row = (b * 6 + h) * 37 + i;
                    std::vector<double> out(9, 0.0), size(9, 0.0);
                    for (std::int64_t t = 0; t < 300; ++t) {
                        const double w = at(weights, row * 300 + t);
                        const double want = std::exp(at(masked, row * 300 + t) - at(result.lse, row));
                        // Rounded once to f32, where small weights are denormal.
                        ASSERT_NEAR(w, want, dtype == DType::f64 ? 0 : 0x1p-24 * want + 0x1p-150);
                        for (std::int64_t col = 0; w != 0 && col < 9; ++col) {
                            const double v = load_f64(in.v.data, in.v.dtype, index4(in.v, b, t, h / 3, col));
                            out[static_cast<std::size_t>(col)] += w * v;
                            size[static_cast<std::size_t>(col)] += w * std::abs(v);
                        }
                    }
                    for (std::size_t col = 0; col < 9; ++col) {
                        const auto n = static_cast<std::size_t>((b * 37 + i) * 6 + h) * 9 + col;
                        // The bound of scores is in that of out; the lse of all weights errs by its own.
                        const double lse = expected.lse_bound[static_cast<std::size_t>(row)] + 0x1p-24;
                        const double bound = expected.out_bound[n] + std::expm1(lse) * size[col];
                        ASSERT_LE(std::abs(out[col] - expected.out[n]), bound + 1e-14 * size[col]);
                    }
                }
    }
}

TEST_P(ScoresTest, ChosenHeadsAndRows) {
    for (const DType dtype : {DType::f32, DType::f64}) {
        const Case c(dtype);
        const AttendInputs in = c.full();
        for (const ScoreKind kind : {ScoreKind::raw, ScoreKind::capped, ScoreKind::masked, ScoreKind::weights}) {
            const Tensor all = scores_of(in, {.kind = kind}, {}, {.threads = 2});
            EXPECT_TRUE(same_bits(all, scores_of(in, {.kind = kind}, {}, {.threads = 1})));
            for (const auto& [h, heads] :
                 {std::pair<std::int64_t, std::int64_t>(0, 3), {1, 4}, {5, 1}, {2, -1}, {6, 0}}) {
                for (const auto& [i, rows] :
                     {std::pair<std::int64_t, std::int64_t>(0, 1), {36, 1}, {7, 20}, {30, -1}, {0, 0}}) {
                    const Tensor part = scores_of(
                        in, {.kind = kind, .first_head = h, .heads = heads, .first_row = i, .rows = rows});
                    const std::int64_t H = part.size(1), T = part.size(2);
                    for (std::int64_t row = 0; row < 2 * H * T; ++row) {
                        const std::int64_t from = (row / (H * T) * 6 + h + row / T % H) * 37 + i + row % T;
                        const auto width = static_cast<std::size_t>(300) * size_of(dtype);
                        ASSERT_EQ(std::memcmp(part.data<char>() + row * static_cast<std::int64_t>(width),
                                              all.data<char>() + from * static_cast<std::int64_t>(width), width),
                                  0);
                    }
                }
            }
        }
    }
}

TEST_P(ScoresTest, ColumnSums) {
    for (const DType dtype : {DType::f32, DType::f64}) {
        const Case c(dtype);
        const AttendInputs in = c.full();
        for (const ScoreRequest& request :
             {ScoreRequest{}, ScoreRequest{.first_head = 2, .heads = 2, .first_row = 3, .rows = 30},
              ScoreRequest{.first_head = 1, .rows = 0}}) {
            const Tensor weights = scores_of(in, request);
            const std::int64_t H = weights.size(1), T = weights.size(2);
            Tensor sums(weights.dtype(), {2, H, 300});
            for (std::int64_t i = 0; i < sums.count(); ++i)
                store_f64(sums.view().data, sums.dtype(), i, kSentinel);
            attend_column_sums(in, {}, request, sums, {.threads = 2});
            for (std::int64_t bh = 0; bh < 2 * H; ++bh) {
                for (std::int64_t t = 0; t < 300; ++t) {
                    double sum = 0;
                    for (std::int64_t i = 0; i < T; ++i) sum += at(weights, (bh * T + i) * 300 + t);
                    ASSERT_EQ(at(sums, bh * 300 + t),
                              dtype == DType::f64 ? sum : static_cast<double>(static_cast<float>(sum)));
                }
            }
        }
    }
}

// A cache and pages give the scores of plain views; what they do not hold is -inf even where scores are raw.
TEST_P(ScoresTest, WhateverHoldsTheKeys) {
    const NanMemory memory;
    const Case c;
    const std::int64_t lengths[] = {300, 141}, offsets[] = {263, 104};
    const ConstTensorView held(lengths, DType::i64, {2});
    AttendInputs plain = c.plain();
    plain.mask = causal() & key_lengths(held),
    plain.positions = Positions::at(ConstTensorView(offsets, DType::i64, {2}));
    for (const ScoreKind kind : {ScoreKind::raw, ScoreKind::masked, ScoreKind::weights}) {
        const Tensor expected = scores_of(plain, {.kind = kind});
        for (const CacheKind of : kKinds) {
            KvCacheConfig config{
                .batch = 2, .kv_heads = 2, .key_dim = 17, .value_dim = 9, .capacity = 300, .kind = of};
            config.page_size = 24;
            KvCache cache(config);
            cache.append(c.x.k.view, c.x.v.view, held);
            AttendInputs in;
            in.q = c.x.q.view, in.cache = &cache, in.mask = causal();
            const Tensor got = scores_of(in, {.kind = kind});
            for (std::int64_t n = 0; n < got.count(); ++n) {
                const bool lost = n >= got.count() / 2 && n % 300 >= 141;
                const double want = lost && kind != ScoreKind::weights ? double{-kInf} : at(expected, n);
                ASSERT_EQ(at(got, n), want) << name_of_kind(of) << ' ' << n;
            }
        }
    }
}

TEST_P(ScoresTest, KeysThatARingHasOverwritten) {
    const Operands x({.T = 1, .S = 50, .H = 1, .G = 1, .D = 4, .Dv = 4});
    KvCache ring({.batch = 1,
                  .kv_heads = 1,
                  .key_dim = 4,
                  .value_dim = 4,
                  .capacity = 20,
                  .keep_first = 3,
                  .kind = CacheKind::ring});
    ring.append(x.k.view, x.v.view);
    AttendInputs in;
    in.q = x.q.view, in.cache = &ring, in.mask = window(10, 0);
    const Tensor got = scores_of(in, {.kind = ScoreKind::raw}),
                 want = scores_of(x.inputs(), {.kind = ScoreKind::raw});
    for (std::int64_t t = 0; t < 50; ++t)
        EXPECT_EQ(at(got, t), t < 3 || t >= 33 ? at(want, t) : double{-kInf}) << t;
}

// NaN of hidden keys stays out of masked scores and weights; rows without keys have no weight at all.
TEST_P(ScoresTest, HiddenKeysAndEmptyRows) {
    Operands x({.T = 4, .S = 200, .H = 2, .G = 1, .D = 8, .Dv = 8});
    for (std::int64_t t = 100; t < 200; ++t) x.k.set(0, t, 0, 0, kNaN);
    AttendInputs in = x.inputs();
    in.mask = causal(), in.positions = Positions::top_left();
    const std::int64_t offset[] = {-2};
    in.positions = Positions::at(ConstTensorView(offset, DType::i64, {1}));
    const Tensor weights = scores_of(in, {}), masked = scores_of(in, {.kind = ScoreKind::masked});
    for (std::int64_t n = 0; n < weights.count(); ++n) {
        const bool seen = n % 200 <= n / 200 % 4 - 2;
        EXPECT_EQ(at(weights, n) > 0, seen);
        EXPECT_EQ(std::isfinite(at(masked, n)), seen);
        EXPECT_FALSE(std::isnan(at(weights, n)) || std::isnan(at(masked, n)));
    }
}

TEST(ScoresErrors, EachInWords) {
    const Operands x({.T = 3, .S = 5, .H = 4, .G = 2, .D = 8, .Dv = 6});
    Tensor to(DType::f32, {1, 4, 3, 5}), lse(DType::f32, {1, 4, 3});
    to.data<float>()[0] = 7;
    const auto refused = [&](const std::string& words, const ScoreRequest& request, const TensorView& target,
                             const ConstTensorView& sums = {}) {
        const std::string message =
            message_of(ErrorCode::invalid_argument, [&] { attend_scores(x.inputs(), sums, request, target); });
        EXPECT_NE(message.find(words), std::string::npos) << message << "\n  lacks: " << words;
        EXPECT_EQ(to.data<float>()[0], 7);
    };
    refused("heads 5 and -1", {.first_head = 5}, to);
    refused("heads -1 and 1", {.first_head = -1, .heads = 1}, to);
    refused("heads 3 and 2 from there on; there are 4", {.first_head = 3, .heads = 2}, to);
    refused("heads 0 and -2", {.heads = -2}, to);
    refused("rows 2 and 2 from there on; there are 3", {.first_row = 2, .rows = 2}, to);
    refused("the target is f32 [1, 4, 3, 5] but must be f32 [1, 2, 3, 5]", {.heads = 2}, to);
    refused("the target is no tensor", {}, {});
    refused("null address", {}, TensorView(nullptr, DType::f32, {1, 4, 3, 5}));
    refused("lse is f32 [4, 3]", {}, to, ConstTensorView(lse.view().data, DType::f32, {4, 3}));
    AttendInputs none;
    message_of(ErrorCode::invalid_argument, [&] { attend_scores(none, {}, {}, to); });
    Tensor sums(DType::f32, {1, 4, 5});
    const std::string message = message_of(
        ErrorCode::invalid_argument, [&] { attend_column_sums(x.inputs(), {}, {.kind = ScoreKind::raw}, sums); });
    EXPECT_NE(message.find("only weights"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, ScoresTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
