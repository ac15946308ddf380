// Rotation of heads: pairs, widths, directions, positions and tables, against a float64 loop.
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/heads.h>

#include "core/check.h"
#include "head_rows.h"
#include "heads/check.h"
#include "heads/rope.h"
#include "isas.h"

namespace headwise {
namespace {

// Column i of a head turned by `angle(pair)`, in f64, and the size of what was added up.
struct Turned {
    double y, size;
};
template <class Angle>
Turned turned(const HeadRows& x, const RopeLayout& layout, std::int64_t b, std::int64_t t, std::int64_t n,
              std::int64_t i, Angle angle) {
    const std::int64_t c = i - layout.offset;
    if (c < 0 || c >= 2 * layout.half) return {x.at(b, t, n, i), 0};
    const bool interleaved = layout.pairs == Rope::Pairs::interleaved;
    const std::int64_t pair = interleaved ? c / 2 : c % layout.half;
    const bool second = interleaved ? c % 2 == 1 : c >= layout.half;
    const double a = x.at(b, t, n, layout.offset + (interleaved ? 2 * pair : pair));
    const double z = x.at(b, t, n, layout.offset + (interleaved ? 2 * pair + 1 : pair + layout.half));
    const double turn = layout.inverse ? -angle(pair) : angle(pair);
    const double y = second ? z * std::cos(turn) + a * std::sin(turn) : a * std::cos(turn) - z * std::sin(turn);
    return {y, std::abs(a) + std::abs(z)};
}

template <class Angle>
void expect_turned(const HeadRows& before, const HeadRows& after, const RopeLayout& layout,
                   const std::string& what, Angle angle) {
    before.for_each([&](std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) {
        const Turned want =
            turned(before, layout, b, t, n, i, [&](std::int64_t pair) { return angle(b, t, pair); });
        // Table, product and sum round once each.
        const double tiny = before.dtype == DType::f16 ? 0x1p-25 : 0;
        const double bound = 4 * 0x1p-24 * want.size + unit_roundoff(before.dtype) * std::abs(want.y) + tiny;
        ASSERT_LE(std::abs(after.at(b, t, n, i) - want.y), want.size == 0 ? 0 : bound)
            << what << " at " << b << " " << t << " " << n << " " << i;
    });
    EXPECT_EQ(after.gaps_changed(), 0) << what;
}

class RopeTest : public IsaTest {};

TEST_P(RopeTest, EveryWidthPairingAndType) {
    const std::int64_t positions[] = {5, 0, 140000, 63, 64, 7};
    const ConstTensorView given(positions, DType::i64, {2, 3});
    for (const std::int64_t D : head_widths()) {
        for (const auto pairs : {Rope::Pairs::half_split, Rope::Pairs::interleaved}) {
            for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
                // The whole head, or what is even of it behind an offset.
                for (const std::int64_t offset : {std::int64_t{0}, D / 3}) {
                    const std::int64_t width = (D - offset) / 2 * 2;
                    if (width == 0) continue;
                    const Rope rope{.theta = 500.0, .pairs = pairs, .width = width, .offset = offset};
                    HeadRows x(dtype, 2, 3, 2, D, 11);
                    const HeadRows before = x;
                    const Rotation rotation(rope, D);
                    rotate(table(), x.view(), rotation, {.given = given}, {});
                    expect_turned(before, x, rotation.layout(), text("D ", D, " width ", width, " of ", dtype),
                                  [&](std::int64_t b, std::int64_t t, std::int64_t pair) {
                                      const double e =
                                          -2.0 * static_cast<double>(pair) / static_cast<double>(width);
                                      return static_cast<double>(positions[b * 3 + t]) * std::pow(500.0, e);
                                  });
                }
            }
        }
    }
}

TEST_P(RopeTest, InverseTurnsBack) {
    for (const auto pairs : {Rope::Pairs::half_split, Rope::Pairs::interleaved}) {
        HeadRows x(DType::f32, 1, 4, 2, 24, 3);
        const HeadRows before = x;
        Rope rope{.pairs = pairs, .width = 16, .offset = 4, .inverse = true};
        rotate(table(), x.view(), Rotation(rope, 24), {}, {});
        expect_turned(before, x, rope_layout(rope, 24, ""), "inverse",
                      [](auto, std::int64_t t, std::int64_t pair) {
                          return static_cast<double>(t) * std::pow(10000.0, -static_cast<double>(pair) / 8);
                      });
        rope.inverse = false;
        rotate(table(), x.view(), Rotation(rope, 24), {}, {});
        before.for_each([&](std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) {
            EXPECT_NEAR(x.at(b, t, n, i), before.at(b, t, n, i), 0x1p-20);
        });
    }
}

TEST_P(RopeTest, PositionsGivenCountedOrBehindACache) {
    const std::int32_t shared[] = {0, 1, 2, 3};
    const std::int64_t lengths[] = {9, 0}, apart[] = {9, 10, 11, 12, 0, 1, 2, 3};
    const Rotation rotation(Rope{}, 8);
    const auto run = [&](const RopePositions& positions, int threads) {
        HeadRows x(DType::f32, 2, 4, 3, 8, 5);
        rotate(table(), x.view(), rotation, positions, {.threads = threads});
        return x.bytes;
    };
    EXPECT_EQ(run({.given = {shared, DType::i32, {4}}}, 1), run({}, 2));
    EXPECT_EQ(run({.given = {apart, DType::i64, {2, 4}}}, 1), run({.offsets = {lengths, DType::i64, {2}}}, 2));
    EXPECT_NE(run({}, 1), run({.offsets = {lengths, DType::i64, {2}}}, 1));
}

TEST_P(RopeTest, TablesByTokenAndByPosition) {
    constexpr std::int64_t kHalf = 10, kRows = 6;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const bool inverse : {false, true}) {
            Tensor cos(dtype, {kRows, kHalf}), sin(dtype, {kRows, kHalf});
            for (std::int64_t i = 0; i < cos.count(); ++i) {
                store_f64(cos.view().data, dtype, i, std::cos(0.37 * static_cast<double>(i)));
                store_f64(sin.view().data, dtype, i, std::sin(0.37 * static_cast<double>(i)));
            }
            const Rope rope{.width = 2 * kHalf, .offset = 1, .inverse = inverse};
            const RopeLayout layout = rope_layout(rope, 23, "");
            const std::int64_t by_position[] = {5, 0, 2, 2, 1, 4};
            const auto expect_rows = [&](const HeadRows& before, const HeadRows& after, auto row_of) {
                before.for_each([&](std::int64_t b, std::int64_t t, std::int64_t n, std::int64_t i) {
                    const std::int64_t c = i - 1, row = row_of(b, t);
                    if (c < 0 || c >= 2 * kHalf) {
                        EXPECT_EQ(after.at(b, t, n, i), before.at(b, t, n, i));
                        return;
                    }
                    const std::int64_t at = row * kHalf + c % kHalf;
                    const double co = load_f64(cos.view().data, dtype, at);
                    const double si = load_f64(sin.view().data, dtype, at) * (inverse ? -1 : 1);
                    const double a = before.at(b, t, n, 1 + c % kHalf),
                                 z = before.at(b, t, n, 1 + kHalf + c % kHalf);
                    const double want = c < kHalf ? a * co - z * si : z * co + a * si;
                    EXPECT_NEAR(after.at(b, t, n, i), want, 3 * 0x1p-24 * (std::abs(a) + std::abs(z)));
                });
            };
            HeadRows x(DType::f32, 2, 3, 2, 23, 8);
            const HeadRows before = x;
            HeadRows y = x, z = x;
            const ConstTensorView per_token = std::as_const(cos).view().split_axis(0, 2, 3);
            const std::int64_t cached[] = {1000, 2000};  // rows of the tokens do not move behind a cache
            const RopeTables own{per_token, std::as_const(sin).view().split_axis(0, 2, 3)};
            rotate(table(), x.view(), layout, own, {.offsets = {cached, DType::i64, {2}}}, {});
            expect_rows(before, x, [](std::int64_t b, std::int64_t t) { return b * 3 + t; });
            rotate(table(), y.view(), layout, {cos.view().slice(0, 0, 3), sin.view().slice(0, 0, 3)}, {}, {});
            expect_rows(before, y, [](std::int64_t, std::int64_t t) { return t; });
            rotate(table(), z.view(), layout, {cos, sin}, {.given = {by_position, DType::i64, {2, 3}}},
                   {.threads = 2});
            expect_rows(before, z, [&](std::int64_t b, std::int64_t t) { return by_position[b * 3 + t]; });
        }
    }
}

// The public function computes what a layer reads from its tables, for every scaling whose table it is.
TEST_P(RopeTest, PublicFunctionHasTheBitsOfALayer) {
    set_isa(std::string(table().isa) == "portable16" ? "" : table().isa);
    for (const std::int64_t longest : {0, 40, 5000}) {
        for (const auto kind :
             {RopeScaling::Kind::none, RopeScaling::Kind::dynamic, RopeScaling::Kind::longrope}) {
            const Rope rope{.scaling = {.kind = kind,
                                        .factor = 4,
                                        .max_position = 32,
                                        .original_max_position = 32,
                                        .short_factor = {1, 1.5, 2},
                                        .long_factor = {1, 3, 9}}};
            HeadRows x(DType::f32, 2, 50, 2, 6, 5), y = x;
            rotate(x.view(), rope, {}, longest, {.threads = 2});
            rotate(kernels(), y.view(), Rotation(rope, 6), {.longest = longest}, {});
            EXPECT_EQ(x.bytes, y.bytes) << longest;
        }
    }
    set_isa("");
}

TEST_P(RopeTest, EmptyTensorsAreLeftAlone) {
    float none = 0;
    const Rotation rotation(Rope{}, 8);
    for (const auto& sizes : {std::vector<std::int64_t>{0, 3, 2, 8}, {2, 0, 2, 8}, {2, 3, 0, 8}}) {
        rotate(table(), TensorView(&none, DType::f32, sizes), rotation, {}, {});
    }
    EXPECT_EQ(none, 0);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, RopeTest, every_isa(), isa_name);

TEST(RopeTable, MatchesTheFormulaInsideAndBeyondThePages) {
    const Rope rope{.scaling = {.attention_factor = 1.25}};
    const auto shared = RopeTable::shared(rope_frequencies(rope, 8));
    std::vector<float> beyond(8);
    for (const std::int64_t position : {0, 1, 63, 64, 65, 131071, 131072, 10'000'000, -1, -70}) {
        const float* row = shared->find(position);
        EXPECT_EQ(row == nullptr, position < 0 || position >= 131072) << position;
        if (row == nullptr) {
            shared->fill(position, beyond.data());
            row = beyond.data();
        }
        for (int i = 0; i < 4; ++i) {
            const double angle = static_cast<double>(position) / std::pow(10000.0, i / 4.0);
            // The frequency's last bit counts in the angle: 2^-52 relative, and one rounding to f32.
            const double bound = 1.25 * (0x1p-24 + 0x1p-51 * std::abs(angle));
            EXPECT_NEAR(row[i], 1.25 * std::cos(angle), bound) << position << " " << i;
            EXPECT_NEAR(row[4 + i], 1.25 * std::sin(angle), bound) << position << " " << i;
        }
    }
}

TEST(RopeTable, IsSharedByEqualNumbersAndForgottenWithItsLastLayer) {
    const auto first = RopeTable::shared(rope_frequencies(Rope{}, 8));
    EXPECT_EQ(first, RopeTable::shared(rope_frequencies(Rope{}, 8)));
    EXPECT_NE(first, RopeTable::shared(rope_frequencies(Rope{}, 16)));
    EXPECT_NE(first, RopeTable::shared(rope_frequencies(Rope{.theta = 500}, 8)));
    EXPECT_NE(first, RopeTable::shared(rope_frequencies(Rope{.scaling = {.attention_factor = 2.0}}, 8)));
    std::weak_ptr<const RopeTable> last;
    {
        const Rotation layer(Rope{.theta = 123}, 8), other(Rope{.theta = 123}, 8);
        EXPECT_EQ(layer.table(0), other.table(0));
        last = RopeTable::shared(rope_frequencies(Rope{.theta = 123}, 8));
    }
    EXPECT_TRUE(last.expired());
}

TEST(RopeTable, ThreadsMayAskForNewPagesAtOnce) {
    const auto shared = RopeTable::shared(rope_frequencies(Rope{.theta = 777}, 32));
    std::vector<std::thread> threads;
    std::vector<const float*> rows(4);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        threads.emplace_back([&, i] {
            for (std::int64_t page = 0; page < 8; ++page) rows[i] = shared->find(page * 64);
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const float* row : rows) EXPECT_EQ(row, shared->find(7 * 64));
}

}  // namespace
}  // namespace headwise
