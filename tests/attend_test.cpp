// attend() without masks: sizes around every edge, head widths, types, layouts, threads.
#include "attend_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendTest : public IsaTest {};

TEST_P(AttendTest, SizesAroundEveryTileEdge) {
    for (const std::int64_t T : grid<std::int64_t>({1, 2, 5, 6, 7, 13, 25, 49, 97}, {1, 7, 25})) {
        for (const std::int64_t S :
             grid<std::int64_t>({1, 7, 8, 9, 15, 17, 33, 127, 128, 129, 257}, {1, 9, 129})) {
            const Operands x({.T = T, .S = S, .H = 3, .G = 1, .D = 16, .Dv = 24});
            SCOPED_TRACE(x.shape.text());
            for (const Path path : {Path::direct, Path::packed})
                expect_matches(table(), x.inputs(), {.path = path});
        }
    }
}

TEST_P(AttendTest, HeadWidths) {
    const auto widths = grid<std::int64_t>(
        {1, 2, 3, 5, 8, 15, 16, 17, 32, 33, 40, 63, 64, 65, 80, 96, 127, 128, 160, 192, 256, 576},
        {1, 5, 17, 64, 576});
    for (std::size_t i = 0; i < widths.size(); ++i) {
        const std::int64_t D = widths[i], Dv = widths[widths.size() - 1 - i];
        for (const auto& [width, value_width] : {std::pair{D, D}, std::pair{D, Dv}}) {
            const Operands x({.T = 11, .S = 37, .H = 2, .G = 2, .D = width, .Dv = value_width});
            SCOPED_TRACE(x.shape.text());
            for (const Path path : {Path::direct, Path::packed})
                expect_matches(table(), x.inputs(), {.path = path});
        }
    }
}

TEST_P(AttendTest, RowsOfEveryRegisterTile) {
    for (std::int64_t T = 1; T <= 2 * kTileQueries + 1; T += full_grid() ? 1 : 5) {
        const Operands x({.T = T, .S = 20, .D = 5, .Dv = 9});
        SCOPED_TRACE(x.shape.text());
        for (const Path path : {Path::direct, Path::packed}) expect_matches(table(), x.inputs(), {.path = path});
    }
}

TEST_P(AttendTest, TypesAndLayouts) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const Layout layout : {Layout::bthd, Layout::bhtd, Layout::gaps}) {
            for (const Path path : {Path::direct, Path::packed}) {
                const Shape shape{.B = 2, .T = 9, .S = 140, .H = 4, .G = 2, .D = 20, .Dv = 13, .dtype = dtype};
                const Operands x(shape, layout);
                SCOPED_TRACE(shape.text());
                expect_matches(table(), x.inputs(), {.out = dtype, .layout = layout, .path = path});
                expect_matches(table(), x.inputs(), {.out = DType::f32, .layout = layout, .path = path});
            }
        }
    }
}

TEST_P(AttendTest, PackedQkvIsThreeViewsOfOneBuffer) {
    const std::int64_t B = 2, T = 30, H = 4, G = 2, D = 8;
    Operand rows(B, T, H + 2 * G, D, DType::f32, Layout::bthd);
    std::mt19937 engine(3);
    std::normal_distribution<double> normal;
    rows.fill([&](auto...) { return normal(engine); });
    AttendInputs in;
    in.q = rows.view.slice(2, 0, H), in.k = rows.view.slice(2, H, G), in.v = rows.view.slice(2, H + G, G);
    for (const Path path : {Path::direct, Path::packed}) expect_matches(table(), in, {.path = path});
}

TEST_P(AttendTest, GroupedHeads) {
    for (const std::int64_t G : {1, 2, 3, 6}) {
        for (const std::int64_t T : {1, 5, 40}) {
            Operands x({.B = 2, .T = T, .S = 150, .H = 6, .G = G, .D = 8, .Dv = kProbeColumns});
            SCOPED_TRACE(x.shape.text());
            expect_matches(table(), x.inputs());
            x.make_probe();
            expect_matches(table(), x.inputs());
        }
    }
}

TEST_P(AttendTest, ScaleZeroNegativeAndGiven) {
    const Operands x({.T = 14, .S = 33, .D = 16, .Dv = 16});
    for (const double scale : {0.0, -0.5, 1.0, 3.0, 1e-30}) {
        AttendInputs in = x.inputs();
        in.scale = scale;
        SCOPED_TRACE(scale);
        for (const Path path : {Path::direct, Path::packed}) expect_matches(table(), in, {.path = path});
    }
}

TEST_P(AttendTest, ZeroSizes) {
    for (const Shape& shape : {Shape{.B = 0}, Shape{.T = 0}, Shape{.S = 0}, Shape{.Dv = 0}, Shape{.H = 0, .G = 0},
                               Shape{.H = 0, .G = 3}, Shape{.T = 40, .S = 0}, Shape{.T = 40, .S = 9, .Dv = 0},
                               Shape{.S = 0, .dtype = DType::f64}}) {
        SCOPED_TRACE(shape.text());
        expect_matches(table(), Operands(shape).inputs(),
                       {.out = shape.dtype == DType::f64 ? DType::f64 : DType::f32});
    }
}

TEST(AttendF64, IsJudgedInLongDouble) {
    for (const DType out : {DType::f64, DType::f32}) {
        const Operands x({.B = 2, .T = 5, .S = 19, .H = 4, .G = 2, .D = 7, .Dv = 3, .dtype = DType::f64},
                         Layout::gaps);
        const Result result(kernels(), x.inputs(), {.out = out});
        Expected<long double> expected = reference<long double>(x.inputs());
        if (out == DType::f32) {  // rounding on the way out is all that comes on top
            for (std::size_t i = 0; i < expected.out.size(); ++i) {
                expected.out_bound[i] += 0x1p-24L * std::abs(expected.out[i]);
            }
        }
        EXPECT_EQ(judge(ConstTensorView(result.out.view), expected.out, expected.out_bound).first, "");
        EXPECT_EQ(judge(ConstTensorView(result.lse.view()), expected.lse, expected.lse_bound).first, "");
    }
}

TEST(AttendPath, TellsTheReason) {
    EXPECT_EQ(attend_path(Operands({.T = 1, .S = 500, .H = 8, .G = 2}).inputs()).name, "direct");
    EXPECT_EQ(attend_path(Operands({.T = 300, .S = 300}).inputs()).name, "packed");
    EXPECT_EQ(attend_path(Operands({.dtype = DType::f64}).inputs()).name, "reference_f64");
    EXPECT_FALSE(attend_path(Operands(Shape{}).inputs()).reason.empty());
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
