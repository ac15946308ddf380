// The ONNX operators: what each attribute means, what is decided where the operators' texts are silent (docs/onnx.md), and
// what is refused. The node tests of the suite onnx cover the rest.
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/onnx.h>

#include "core/dtype.h"
#include "matrix.h"
#include "refused.h"

namespace headwise {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor random(DType dtype, const std::vector<std::int64_t>& sizes, std::uint64_t seed, double scale = 1) {
    Tensor tensor(dtype, sizes);
    Numbers numbers(seed);
    for (std::int64_t i = 0; i < tensor.count(); ++i)
        store_f64(tensor.view().data, dtype, i, scale * numbers.next());
    return tensor;
}

std::vector<double> values(const ConstTensorView& view) {
    const Tensor wide = convert(view, DType::f64);
    return {wide.data<double>(), wide.data<double>() + wide.count()};
}

void expect_near(const ConstTensorView& got, const ConstTensorView& want, double tolerance) {
    const std::vector<double> a = values(got), b = values(want);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::isinf(b[i])) {
            EXPECT_EQ(a[i], b[i]) << i;
        } else {
            EXPECT_LE(std::abs(a[i] - b[i]), tolerance) << i << ": " << a[i] << ", expected " << b[i];
        }
    }
}

// One call with rank 4 inputs; `mode` asks for qk_matmul_output.
struct Call {
    onnx::AttentionInputs in{};
    onnx::AttentionAttributes attributes{};
    Tensor y{}, scores{};

    void run(std::optional<int> mode = {}) {
        const std::int64_t B = in.q.size(0), H = in.q.size(1), T = in.q.size(2);
        const std::int64_t S = in.k.size(2) + (in.past_key.empty() ? 0 : in.past_key.size(2));
        y = Tensor(in.q.dtype, {B, H, T, in.v.size(3)});
        onnx::AttentionOutputs out{.y = y};
        if (mode) {
            scores = Tensor(in.q.dtype, {B, H, T, S});
            out.qk_matmul_output = scores, attributes.qk_matmul_output_mode = *mode;
        }
        onnx::attention(in, attributes, out);
    }
};

class OnnxAttention : public testing::Test {
protected:
    const Tensor q = random(DType::f32, {2, 4, 3, 8}, 1), k = random(DType::f32, {2, 2, 5, 8}, 2),
                 v = random(DType::f32, {2, 2, 5, 6}, 3);
    Call call() const { return {.in = {.q = q, .k = k, .v = v}}; }
    // scale * <q, k>, by hand
    double raw(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) const {
        double sum = 0;
        for (std::int64_t d = 0; d < 8; ++d) {
            sum += static_cast<double>(q.data<float>()[((b * 4 + h) * 3 + i) * 8 + d]) *
                   static_cast<double>(k.data<float>()[((b * 2 + h / 2) * 5 + t) * 8 + d]);
        }
        return sum / std::sqrt(8.0);
    }
    // scores[b,h,i,t] of f32 for all elements: expected(b, h, i, t)
    template <class Expected>
    static void expect_scores(const Tensor& scores, Expected expected) {
        const std::int64_t H = scores.size(1), T = scores.size(2), S = scores.size(3);
        for (std::int64_t n = 0; n < scores.count(); ++n) {
            const double want = expected(n / (H * T * S), n / (T * S) % H, n / S % T, n % S);
            const double got = scores.data<float>()[n];
            EXPECT_TRUE(got == want || std::abs(got - want) < 1e-5) << n << ": " << got << ", expected " << want;
        }
    }
};

TEST_F(OnnxAttention, ModesOfTheScores) {
    const Tensor bias = random(DType::f32, {3, 5}, 4);
    Call c = call();
    c.in.attn_mask = bias;
    c.attributes.softcap = 0.5, c.attributes.is_causal = true;
    const auto capped = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
        return 0.5 * std::tanh(raw(b, h, i, t) / 0.5);
    };
    const auto masked = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
        return t > i ? -kInf : capped(b, h, i, t) + static_cast<double>(bias.data<float>()[i * 5 + t]);
    };
    c.run(0);  // raw even with a softcap, unlike the evaluator's reading
    expect_scores(c.scores, [&](auto... at) { return raw(at...); });
    c.run(1);
    expect_scores(c.scores, capped);
    c.run(2);
    expect_scores(c.scores, masked);
    c.run(3);
    expect_scores(c.scores, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
        double sum = 0;
        for (std::int64_t key = 0; key <= i; ++key) sum += std::exp(masked(b, h, i, key));
        return std::exp(masked(b, h, i, t)) / sum;
    });
}

TEST_F(OnnxAttention, CausalStartsAtTheTopLeftWithoutACache) {
    Call c = call();
    c.attributes.is_causal = true;
    c.run(3);
    expect_scores(c.scores, [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t t) {
        double sum = 0;
        for (std::int64_t key = 0; key <= i; ++key) sum += std::exp(raw(b, h, i, key));
        return t > i ? 0 : std::exp(raw(b, h, i, t)) / sum;
    });
}

TEST_F(OnnxAttention, ShortMasksHideTheRest) {
    for (const DType dtype : {DType::boolean, DType::f32}) {
        const auto mask_of = [&](std::int64_t width, std::int64_t shown) {
            Tensor mask(dtype, {3, width});
            for (std::int64_t i = 0; i < mask.count(); ++i) {
                const bool keep = i % width < shown && i % 4 != 1;
                if (dtype == DType::boolean) {
                    mask.data<std::uint8_t>()[i] = keep;
                } else {
                    mask.data<float>()[i] = keep ? 0.25f : -std::numeric_limits<float>::infinity();
                }
            }
            return mask;
        };
        for (const std::int64_t width : {0, 1, 2, 4}) {
            Call brief = call(), whole = call();
            Tensor narrow = mask_of(width, width), wide(dtype, {3, 5});
            for (std::int64_t i = 0; i < 15; ++i) {
                const bool inside = i % 5 < width;
                const std::int64_t from = i / 5 * width + i % 5;
                if (dtype == DType::boolean) {
                    wide.data<std::uint8_t>()[i] = inside ? narrow.data<std::uint8_t>()[from] : std::uint8_t{0};
                } else {
                    wide.data<float>()[i] =
                        inside ? narrow.data<float>()[from] : -std::numeric_limits<float>::infinity();
                }
            }
            brief.in.attn_mask = narrow, whole.in.attn_mask = wide;
            for (const int mode : {0, 1, 2, 3}) {
                brief.run(mode), whole.run(mode);
                EXPECT_EQ(values(brief.y), values(whole.y)) << width;
                EXPECT_EQ(values(brief.scores), values(whole.scores)) << width << " mode " << mode;
            }
        }
    }
}

TEST_F(OnnxAttention, MaskOfOneColumnIsOneKeyFromOpset24On) {
    Tensor mask(DType::f32, {3, 1});
    Call bare = call(), c = call();
    c.in.attn_mask = mask;
    bare.run(), c.attributes.opset = 23, c.run();
    EXPECT_EQ(values(c.y), values(bare.y));
    c.attributes.opset = 24, c.run(3);
    expect_scores(c.scores, [](auto, auto, auto, std::int64_t t) { return t == 0 ? 1.0 : 0.0; });
}

TEST_F(OnnxAttention, HiddenKeysMayHoldAnything) {
    Tensor poisoned = convert(v, DType::f32), keys = convert(k, DType::f32);
    for (std::int64_t i = 0; i < poisoned.count(); ++i) {
        if (i / 6 % 5 == 4) poisoned.data<float>()[i] = i % 2 ? NAN : INFINITY;
    }
    for (std::int64_t i = 0; i < keys.count(); ++i) {
        if (i / 8 % 5 == 4) keys.data<float>()[i] = NAN;
    }
    Tensor mask(DType::boolean, {5});
    for (int t = 0; t < 4; ++t) mask.data<std::uint8_t>()[t] = 1;
    Call clean = call(), c = call();
    clean.in.attn_mask = c.in.attn_mask = mask;
    c.in.k = keys, c.in.v = poisoned;
    clean.run(), c.run();
    EXPECT_EQ(values(c.y), values(clean.y));
}

TEST_F(OnnxAttention, SignsOfSoftcapAndScale) {
    Call c = call(), positive = call();
    c.attributes.softcap = -0.7, positive.attributes.softcap = 0.7;
    c.run(), positive.run();
    EXPECT_EQ(values(c.y), values(positive.y));
    c = call(), c.attributes.scale = -0.3, c.run(0);
    expect_scores(c.scores, [&](auto... at) { return -0.3 * std::sqrt(8.0) * raw(at...); });
}

TEST_F(OnnxAttention, HalfScoresBeyondTheRangeOfF16) {
    const Tensor big_q = random(DType::f16, {1, 1, 2, 64}, 5, 200),
                 big_k = random(DType::f16, {1, 1, 3, 64}, 6, 200), half_v = random(DType::f16, {1, 1, 3, 4}, 7);
    Call c{.in = {.q = big_q, .k = big_k, .v = half_v}, .attributes = {.scale = 1.0}};
    c.run();
    for (const double y : values(c.y)) EXPECT_TRUE(std::isfinite(y));
    c.run(3);
    double sum = 0;
    for (const double weight : values(c.scores)) sum += weight;
    EXPECT_NEAR(sum, 2, 1e-3);
}

TEST_F(OnnxAttention, NoKeysGiveZeros) {
    const Tensor none_k(DType::f32, {2, 2, 0, 8}), none_v(DType::f32, {2, 2, 0, 6});
    Call c{.in = {.q = q, .k = none_k, .v = none_v}};
    c.run(3);
    EXPECT_EQ(values(c.y), std::vector<double>(2 * 4 * 3 * 6, 0.0));
}

TEST_F(OnnxAttention, PastAndPresent) {
    // One sequence of 5 keys at once, or 3 of a past and 2 new ones.
    const ConstTensorView old_k = k.view().slice(2, 0, 3), old_v = v.view().slice(2, 0, 3);
    Call whole = call(), c = call();
    whole.in.q = c.in.q = q.view().slice(2, 0, 2);
    const std::int64_t lengths[] = {5, 5};
    whole.in.nonpad_kv_seqlen = ConstTensorView(lengths, DType::i64, {2});
    c.in.k = k.view().slice(2, 3, 2), c.in.v = v.view().slice(2, 3, 2);
    c.in.past_key = old_k, c.in.past_value = old_v;
    whole.attributes.is_causal = c.attributes.is_causal = true;
    whole.run(2), c.run(2);
    EXPECT_EQ(values(c.y), values(whole.y)) << "the present need not be asked for";
    EXPECT_EQ(values(c.scores), values(whole.scores));

    Tensor present_k(DType::f32, {2, 2, 5, 8}), present_v(DType::f32, {2, 2, 5, 6});
    onnx::attention(c.in, c.attributes, {.y = c.y, .present_key = present_k, .present_value = present_v});
    EXPECT_EQ(values(c.y), values(whole.y));
    EXPECT_EQ(values(present_k), values(k));
    EXPECT_EQ(values(present_v), values(v));

    // The past as the first part of the present's own memory.
    for (std::int64_t i = 0; i < present_k.count(); ++i) {
        if (i / 8 % 5 >= 3) present_k.data<float>()[i] = 99;
    }
    c.in.past_key = present_k.view().slice(2, 0, 3);
    onnx::attention(c.in, c.attributes, {.y = c.y, .present_key = present_k, .present_value = present_v});
    EXPECT_EQ(values(c.y), values(whole.y));
    EXPECT_EQ(values(present_k), values(k));
}

TEST_F(OnnxAttention, PresentWithoutPastIsWhatCame) {
    Tensor present_k(DType::f32, {2, 2, 5, 8}), present_v(DType::f32, {2, 2, 5, 6}), y(DType::f32, {2, 4, 3, 6});
    onnx::attention({.q = q, .k = k, .v = v}, {}, {.y = y, .present_key = present_k, .present_value = present_v});
    EXPECT_EQ(values(present_k), values(k));
    EXPECT_EQ(values(present_v), values(v));
}

TEST_F(OnnxAttention, RankThreeIsTheSameInOtherOrder) {
    const auto rank3 = [](const Tensor& x) {
        const Tensor by_token = convert(x.view().swap_axes(1, 2), DType::f32);
        Tensor flat(DType::f32, {x.size(0), x.size(2), x.size(1) * x.size(3)});
        for (std::int64_t i = 0; i < flat.count(); ++i) flat.data<float>()[i] = by_token.data<float>()[i];
        return flat;
    };
    Call c = call();
    c.run();
    const Tensor q3 = rank3(q), k3 = rank3(k), v3 = rank3(v), want = rank3(c.y);
    Tensor y(DType::f32, {2, 3, 24});
    onnx::attention({.q = q3, .k = k3, .v = v3}, {.q_num_heads = 4, .kv_num_heads = 2}, {.y = y});
    EXPECT_EQ(values(y), values(want));
}

TEST_F(OnnxAttention, OtherTypes) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
        const Tensor tq = convert(q, dtype), tk = convert(k, dtype), tv = convert(v, dtype);
        const Tensor wq = convert(tq, DType::f32), wk = convert(tk, DType::f32), wv = convert(tv, DType::f32);
        Call c{.in = {.q = tq, .k = tk, .v = tv}}, wide{.in = {.q = wq, .k = wk, .v = wv}};
        for (const int mode : {0, 3}) {
            c.run(mode), wide.run(mode);
            const double tolerance = dtype == DType::bf16 ? 0x1p-7 : 0x1p-10;
            expect_near(c.y, wide.y, tolerance);
            expect_near(c.scores, wide.scores, tolerance);
        }
    }
}

TEST_F(OnnxAttention, RefusesWhatDoesNotFit) {
    const auto refuse = [&](auto change, const std::string& words) {
        Call c = call();
        change(c);
        expect_refused([&] { c.run(); }, words);
        for (const double y : values(c.y)) EXPECT_EQ(y, 0) << "memory was touched: " << words;
    };
    Tensor mask(DType::f32, {3, 6}), heads_mask(DType::f32, {3, 3, 5}), whole_numbers(DType::i64, {3, 5}),
        three(DType::f32, {3, 5});
    refuse([&](Call& c) { c.in.attn_mask = mask; }, "does not broadcast");
    refuse([&](Call& c) { c.in.attn_mask = heads_mask; }, "does not broadcast");
    refuse([&](Call& c) { c.in.attn_mask = whole_numbers; }, "integers could mean either");
    refuse([&](Call& c) { c.in.past_key = k; }, "past_key came alone");
    refuse([&](Call& c) { c.in.past_value = v; }, "past_value came alone");
    refuse([&](Call& c) { c.in.past_key = v, c.in.past_value = v; }, "past_key is");
    const Tensor odd = random(DType::f32, {2, 3, 3, 8}, 1), half = convert(k, DType::f16);
    refuse([&](Call& c) { c.in.q = odd; }, "Q has 3 heads, which the 2 heads of K do not divide");
    refuse([&](Call& c) { c.in.k = half; }, "expected f32");
    const std::int64_t lengths[] = {5, 6}, fine[] = {5, 3};
    refuse([&](Call& c) { c.in.nonpad_kv_seqlen = {lengths, DType::i64, {2}}; }, "nonpad_kv_seqlen[1] is 6");
    refuse([&](Call& c) { c.in.nonpad_kv_seqlen = {fine, DType::i64, {1}}; }, "nonpad_kv_seqlen is");
    refuse([&](Call& c) { c.in.nonpad_kv_seqlen = {fine, DType::i64, {2}}, c.attributes.opset = 23; }, "opset 24");
    refuse(
        [&](Call& c) {
            c.in.nonpad_kv_seqlen = {fine, DType::i64, {2}}, c.in.attn_mask = three.view().slice(1, 0, 4);
        },
        "attn_mask covers 4 keys, but nonpad_kv_seqlen[0] is 5");
    refuse(
        [&](Call& c) {
            c.in.nonpad_kv_seqlen = {fine, DType::i64, {2}}, c.in.past_key = k, c.in.past_value = v;
        },
        "exclude each other");
    refuse([&](Call& c) { c.attributes.left_window_size = 1, c.attributes.opset = 24; },
           "windows came with opset 25");
    refuse([&](Call& c) { c.attributes.left_window_size = -2; }, "the window is -2");
    refuse([&](Call& c) { c.attributes.softcap = std::nan(""); }, "softcap is nan");
    refuse([&](Call& c) { c.attributes.scale = kInf; }, "scale is inf");
    refuse([&](Call& c) { c.attributes.opset = 22; }, "opset 22");
    refuse([&](Call& c) { c.attributes.qk_matmul_output_mode = 4; }, "qk_matmul_output_mode is 4");
    refuse([&](Call& c) { c.attributes.softmax_precision = 2; }, "softmax_precision is 2");
    refuse([&](Call& c) { c.attributes.q_num_heads = 4, c.attributes.kv_num_heads = 2; }, "inputs of rank 3");
    refuse([&](Call& c) { c.attributes.q_num_heads = 2, c.attributes.opset = 23; }, "q_num_heads is 2");
    Tensor y(DType::f32, {2, 4, 3, 6}), flat(DType::f32, {2, 3, 24}), wrong(DType::f32, {2, 4, 3, 5});
    const onnx::AttentionInputs in{.q = q, .k = k, .v = v};
    expect_refused([&] { onnx::attention(in, {}, {}); }, "Y is missing");
    expect_refused([&] { onnx::attention(in, {}, {.y = flat}); }, "expected rank 4");
    expect_refused([&] { onnx::attention(in, {}, {.y = wrong}); }, "Y as [B,T,H,Dv]");
    expect_refused([&] { onnx::attention(in, {}, {.y = y, .present_key = wrong}); }, "present_key");
    expect_refused([&] { onnx::attention(in, {}, {.y = y, .qk_matmul_output = wrong.view().slice(3, 0, 4)}); },
                   "qk_matmul_output");
    expect_refused([&] { onnx::attention({.q = flat, .k = flat, .v = flat}, {}, {.y = flat}); },
                   "give q_num_heads");
    expect_refused(
        [&] {
            onnx::attention({.q = flat, .k = flat, .v = flat}, {.q_num_heads = 5, .kv_num_heads = 5}, {.y = flat});
        },
        "does not divide");
    expect_refused([&] { onnx::attention({.q = q, .k = k}, {}, {.y = y}); }, "Q, K or V is missing");
}

}  // namespace
}  // namespace headwise
