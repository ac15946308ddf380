// merge(): parts of attention over disjoint keys become one, whatever the parts that saw nothing hold.
#include <algorithm>

#include "attend_cases.h"
#include "cache_cases.h"

namespace headwise::test {
namespace {

// [B,T,H,Dv] and [B,H,T] of one part.
struct Part {
    Operand out;
    Tensor lse;

    Part(const Shape& s, double value, float lse_of_all, DType dtype = DType::f32)
        : out(s.B, s.T, s.H, s.Dv, dtype, Layout::gaps, kSentinel), lse(DType::f32, {s.B, s.H, s.T}) {
        out.fill([&](auto...) { return value; });
        std::fill_n(lse.data<float>(), lse.count(), lse_of_all);
    }
    AttendPart view() const { return {.out = out.view, .lse = lse.view()}; }
    AttendOutputs outputs() { return {.out = out.view, .lse = lse.view()}; }
    double at(std::int64_t c = 0) const { return load_f64(out.view.data, out.view.dtype, c); }
};

const Shape kShape{.B = 2, .T = 3, .H = 2, .Dv = 5};

// Out and lse of two parts with these values, and of the sinks after them.
std::pair<double, double> merged(std::vector<std::pair<double, float>> values,
                                 const std::vector<float>& sinks = {}) {
    std::vector<Part> parts;
    for (const auto& [value, lse] : values) parts.emplace_back(kShape, value, lse);
    std::vector<AttendPart> views;
    for (const Part& part : parts) views.push_back(part.view());
    Part to(kShape, kSentinel, 0);
    const ConstTensorView list =
        sinks.empty() ? ConstTensorView{} : ConstTensorView(sinks.data(), DType::f32, {2});
    merge(views, to.outputs(), list);
    EXPECT_EQ(load_f64(to.out.memory.view().data, DType::f32, 5), kSentinel);  // the gap behind a row
    return {to.at(), to.lse.data<float>()[0]};
}

TEST(Merge, WeighsByLse) {
    const auto [out, lse] = merged({{1, 0.0f}, {4, std::log(2.0f)}});
    EXPECT_NEAR(out, 3.0, 8 * 0x1p-24 * 3 * 2);
    EXPECT_NEAR(lse, std::log(3.0), 4 * 0x1p-24 * 2.1);
}

TEST(Merge, PartsThatSawNothingAreTheIdentity) {
    for (const double nothing : {0.0, static_cast<double>(kNaN), static_cast<double>(kInf)}) {
        for (const float lse : {-1e30f, -3.0f, 0.0f, 77.7f, 1e30f}) {
            EXPECT_EQ(merged({{1.23456f, lse}, {nothing, -kInf}}), std::pair(double{1.23456f}, double{lse}));
            EXPECT_EQ(merged({{nothing, -kInf}, {1.23456f, lse}, {nothing, -kInf}}),
                      std::pair(double{1.23456f}, double{lse}));
        }
        EXPECT_EQ(merged({{nothing, -kInf}, {nothing, -kInf}}), std::pair(0.0, double{-kInf}));
    }
    EXPECT_EQ(merged({}), std::pair(0.0, double{-kInf}));
}

TEST(Merge, WhatIsNotFiniteSpreads) {
    for (const float bad : {kNaN, kInf}) {
        for (const bool first : {true, false}) {
            const auto [out, lse] =
                first ? merged({{1, bad}, {2, 3}, {4, 5}}) : merged({{1, 2}, {3, bad}, {4, 5}});
            EXPECT_TRUE(std::isnan(out) && std::isnan(lse)) << out << ' ' << lse;
        }
    }
    EXPECT_TRUE(std::isnan(merged({{1, 0}, {kNaN, 0}}).first));
    EXPECT_FALSE(std::isfinite(merged({{1, 0}, {kInf, -300}}).first));
    // Far apart: the smaller one vanishes, and nothing overflows.
    EXPECT_EQ(merged({{1, 3e38f}, {2, -3e38f}}), std::pair(1.0, double{3e38f}));
}

TEST(Merge, SinksJoinLastAndOnce) {
    const auto [out, lse] = merged({{1, 0.0f}, {4, 0.0f}}, {std::log(2.0f), 0.0f});
    EXPECT_NEAR(out, 1.25, 8 * 0x1p-24 * 1.25 * 2);
    EXPECT_NEAR(lse, std::log(4.0), 4 * 0x1p-24 * 2.4);
    EXPECT_EQ(merged({{1, 0.0f}}, {-kInf, 0}), std::pair(1.0, 0.0));
    EXPECT_EQ(merged({{kNaN, -kInf}}, {2.5f, 0}), std::pair(0.0, 2.5));
    for (const float bad : {kNaN, kInf}) EXPECT_TRUE(std::isnan(merged({{1, 0.0f}}, {bad, 0}).first));
}

TEST(Merge, TypesMayDiffer) {
    for (const DType a : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
        for (const DType b : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
            Part first(kShape, 0.5, 1, a), second(kShape, 1.5, 1, b);
            for (const DType c : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
                Part to(kShape, kSentinel, 0, c);
                const AttendPart parts[] = {first.view(), second.view()};
                merge(parts, to.outputs());
                EXPECT_EQ(to.at(), 1.0);
            }
        }
    }
}

TEST(Merge, IntoOneOfThePartsAndOnAnyThreads) {
    const Shape shape{.B = 3, .T = 40, .H = 8, .Dv = 48};
    std::mt19937 engine(1);
    std::normal_distribution<double> normal;
    Part a(shape, 0, 0), b(shape, 0, 0), to(shape, 0, 0);
    for (Part* part : {&a, &b}) {
        part->out.fill([&](auto...) { return normal(engine); });
        for (std::int64_t i = 0; i < part->lse.count(); ++i)
            part->lse.data<float>()[i] = static_cast<float>(normal(engine));
    }
    const AttendPart parts[] = {a.view(), b.view()};
    merge(parts, to.outputs(), {}, {.threads = 1});
    const auto bytes = [](const Part& part) {
        return std::string(part.out.memory.data<char>(), static_cast<std::size_t>(part.out.memory.count()) * 4) +
               std::string(part.lse.data<char>(), static_cast<std::size_t>(part.lse.count()) * 4);
    };
    const std::string expected = bytes(to);
    merge(parts, to.outputs(), {}, {.threads = 5});
    EXPECT_EQ(bytes(to), expected);
    merge(parts, a.outputs(), {}, {.threads = 3});
    EXPECT_EQ(bytes(a), expected);
}

// Cascade: many sequences begin with the same prefix. Its keys are read once for all of them, as one sequence with B * T
// queries; their own keys come from a cache; merge() joins the two. docs/cache.md tells this as an example.
TEST(Merge, SharedPrefix) {
    const std::int64_t B = 3, T = 2, H = 4, G = 2, D = 16, prefix = 300, own = 40;
    const Operands shared({.B = 1, .T = 1, .S = prefix, .H = H, .G = G, .D = D, .Dv = D});
    const Operands x({.B = B, .T = T, .S = own, .H = H, .G = G, .D = D, .Dv = D}, Layout::bthd, 2);
    KvCache cache({.batch = B, .kv_heads = G, .key_dim = D, .value_dim = D, .capacity = own});
    cache.append(x.k.view, x.v.view);

    const auto outputs = [&] { return Tensor(DType::f32, {B, T, H, D}); };
    Tensor prefix_out = outputs(), own_out = outputs(), out = outputs();
    Tensor prefix_lse(DType::f32, {1, H, B * T}), own_lse(DType::f32, {B, H, T});
    AttendInputs over_prefix = shared.inputs();
    over_prefix.q = ConstTensorView(x.q.view.data, DType::f32, {1, B * T, H, D});
    attend(over_prefix,
           {.out = TensorView(prefix_out.view().data, DType::f32, {1, B * T, H, D}), .lse = prefix_lse});
    AttendInputs over_own;
    over_own.q = x.q.view, over_own.cache = &cache, over_own.mask = causal();
    attend(over_own, {.out = own_out, .lse = own_lse});
    const AttendPart parts[] = {
        {.out = prefix_out, .lse = ConstTensorView(prefix_lse.view().data, DType::f32, {B, H, T}, {T, B * T, 1})},
        {.out = own_out, .lse = own_lse}};
    merge(parts, {.out = out});

    // The same in one call, on keys put one behind the other.
    Operands all({.B = B, .T = T, .S = prefix + own, .H = H, .G = G, .D = D, .Dv = D});
    const auto join = [&](const Operand& head, const Operand& tail, Operand& to) {
        to.fill([&](std::int64_t b, std::int64_t t, std::int64_t g, std::int64_t d) {
            return t < prefix ? load_f64(head.view.data, DType::f32, index4(head.view, 0, t, g, d))
                              : load_f64(tail.view.data, DType::f32, index4(tail.view, b, t - prefix, g, d));
        });
    };
    join(shared.k, x.k, all.k), join(shared.v, x.v, all.v);
    AttendInputs whole = all.inputs();
    whole.q = x.q.view, whole.mask = causal();
    const Expected<double> expected = reference<double>(whole);
    // Each part errs by its bound, its weight by the bound of both lse, and merge() by its own.
    AttendInputs own_plain = x.inputs();
    own_plain.mask = causal();
    const Expected<double> of_prefix = reference<double>(over_prefix), of_own = reference<double>(own_plain);
    std::vector<double> bound(expected.out.size());
    for (std::size_t n = 0; n < bound.size(); ++n) {
        const std::size_t row = n / static_cast<std::size_t>(D), b = row / static_cast<std::size_t>(T * H);
        const std::size_t t = row / static_cast<std::size_t>(H) % static_cast<std::size_t>(T),
                          h = row % static_cast<std::size_t>(H);
        const std::size_t a = h * static_cast<std::size_t>(B * T) + b * static_cast<std::size_t>(T) + t;
        const std::size_t c = (b * static_cast<std::size_t>(H) + h) * static_cast<std::size_t>(T) + t;
        const double lse[] = {of_prefix.lse[a], of_own.lse[c]}, out_of[] = {of_prefix.out[n], of_own.out[n]};
        const double err[] = {of_prefix.out_bound[n], of_own.out_bound[n]};
        const double weight = 1 / (1 + std::exp(lse[1] - lse[0])),
                     of_both = of_prefix.lse_bound[a] + of_own.lse_bound[c];
        const double size = weight * std::abs(out_of[0]) + (1 - weight) * std::abs(out_of[1]);
        bound[n] = weight * err[0] + (1 - weight) * err[1] + std::expm1(of_both) * size +
                   8 * 0x1p-24 * size * (1 + std::abs(lse[0] - lse[1])) + 0x1p-24 * std::abs(expected.out[n]);
    }
    const Verdict verdict = judge(ConstTensorView(out.view()), expected.out, bound);
    EXPECT_EQ(verdict.bad, 0) << verdict.first;
    EXPECT_GT(verdict.worst_ratio, 1e-3);
}

TEST(Merge, Errors) {
    Part part(kShape, 1, 0), to(kShape, 0, 0);
    const auto refused = [&](const std::string& words,
                             const std::function<void(AttendPart&, AttendOutputs&, ConstTensorView&)>& breaks) {
        AttendPart one = part.view();
        AttendOutputs out = to.outputs();
        ConstTensorView sinks;
        breaks(one, out, sinks);
        const AttendPart parts[] = {part.view(), one};
        const std::string message = message_of(ErrorCode::invalid_argument, [&] { merge(parts, out, sinks); });
        EXPECT_NE(message.find(words), std::string::npos) << message << "\n  lacks: " << words;
    };
    refused("out is no tensor but must be [B,T,H,Dv]", [](auto&, auto& out, auto&) { out.out = {}; });
    refused("the out of a part is no tensor", [](auto& one, auto&, auto&) { one.out = {}; });
    refused("the out of a part is", [](auto& one, auto&, auto&) { one.out = one.out.slice(3, 0, 4); });
    refused("must be f32, bf16, f16 or f64", [](auto& one, auto&, auto&) { one.out.dtype = DType::i32; });
    refused("innermost stride must be 1", [](auto& one, auto&, auto&) { one.out.strides[3] = 2; });
    refused("the lse of a part is no tensor", [](auto& one, auto&, auto&) { one.lse = {}; });
    refused("the lse of a part is", [](auto& one, auto&, auto&) { one.lse = one.lse.swap_axes(1, 2); });
    refused("lse is bf16", [](auto&, auto& out, auto&) { out.lse.dtype = DType::bf16; });
    refused("null address", [](auto& one, auto&, auto&) { one.out.data = nullptr; });
    refused("several rows to one place", [](auto&, auto& out, auto&) { out.out.strides[1] = 0; });
    refused("sinks is f32 [3] but must be f32 [H] = [2]",
            [](auto& one, auto&, auto& sinks) { sinks = ConstTensorView(one.lse.data, DType::f32, {3}); });
}

}  // namespace
}  // namespace headwise::test
