// What attend() refuses, in words, before it touches memory.
#include <headwise/attend.h>

#include <functional>

#include <gtest/gtest.h>

#include "attend_cases.h"

namespace headwise::test {
namespace {

// A call that is right; every test breaks one thing.
struct Call {
    Operands x{{.B = 2, .T = 3, .S = 5, .H = 4, .G = 2, .D = 8, .Dv = 6}};
    Tensor out{DType::f32, {2, 3, 4, 6}}, lse{DType::f32, {2, 4, 3}};
    std::int64_t numbers[2] = {1, 2};
    AttendInputs in = x.inputs();
    AttendOutputs to{.out = out.view(), .lse = lse.view()};

    ConstTensorView integers() const { return ConstTensorView(numbers, DType::i64, {2}); }
};

std::string error_of(const std::function<void(Call&)>& breaks) {
    Call call;
    call.out.data<float>()[0] = 7;
    breaks(call);
    try {
        attend(call.in, call.to);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_EQ(call.out.data<float>()[0], 7) << "memory was touched";
        return error.what();
    }
    return "accepted";
}

void expect_error(const std::string& words, const std::function<void(Call&)>& breaks) {
    const std::string message = error_of(breaks);
    EXPECT_NE(message.find(words), std::string::npos) << message << "\n  lacks: " << words;
    EXPECT_EQ(message.substr(0, 8), "attend: ");
}

TEST(AttendErrors, ARightCallIsAccepted) {
    EXPECT_EQ(error_of([](Call& c) { c.in.mask.key_lengths = c.integers(); }), "accepted");
}

TEST(AttendErrors, Shapes) {
    expect_error("q is missing", [](Call& c) { c.in.q = {}; });
    expect_error("out is missing", [](Call& c) { c.to.out = {}; });
    expect_error("must have the 4 axes [B,T,H,D]", [](Call& c) {
        c.in.q = ConstTensorView(c.in.q.data, DType::f32, {3, 4, 8});
    });
    expect_error("but B (axis 0) must be 2", [](Call& c) { c.in.k = c.in.k.slice(0, 0, 1); });
    expect_error("but D (axis 3) must be 8", [](Call& c) { c.in.k = c.in.k.slice(3, 0, 7); });
    expect_error("but S (axis 1) must be 5", [](Call& c) { c.in.v = c.in.v.slice(1, 0, 4); });
    expect_error("but G (axis 2) must be 2", [](Call& c) { c.in.v = c.in.v.slice(2, 0, 1); });
    expect_error("H must be a multiple of G", [](Call& c) { c.in.q = c.in.q.slice(2, 0, 3); });
    expect_error("H must be a multiple of G",
                 [](Call& c) { c.in.k = c.in.k.slice(2, 0, 0), c.in.v = c.in.v.slice(2, 0, 0); });
    expect_error("D = 0", [](Call& c) { c.in.q = c.in.q.slice(3, 0, 0), c.in.k = c.in.k.slice(3, 0, 0); });
    expect_error("but T (axis 1) must be 3", [](Call& c) { c.to.out = c.to.out.slice(1, 0, 2); });
    expect_error("but Dv (axis 3) must be 6", [](Call& c) { c.to.out = c.to.out.slice(3, 0, 5); });
    expect_error("but T (axis 2) must be 3", [](Call& c) { c.to.lse = c.to.lse.slice(2, 0, 2); });
    expect_error("must have the 3 axes [B,H,T]", [](Call& c) { c.to.lse = c.to.lse.split_axis(1, 2, 2); });
}

TEST(AttendErrors, TypesAndStrides) {
    expect_error("must share one type", [](Call& c) { c.in.k.dtype = DType::bf16; });
    expect_error("must be f32, bf16, f16 or f64", [](Call& c) { c.in.q.dtype = DType::i32; });
    expect_error("must be f32 or f32 like q", [](Call& c) { c.to.out.dtype = DType::bf16; });
    expect_error("lse is f64", [](Call& c) { c.to.lse.dtype = DType::f64; });
    expect_error("innermost stride must be 1", [](Call& c) { c.in.k.strides[3] = 2; });
    expect_error("innermost stride must be 1", [](Call& c) { c.to.out.strides[3] = 4; });
    expect_error("several rows to one place", [](Call& c) { c.to.out.strides[1] = 0; });
    expect_error("which no memory can hold", [](Call& c) { c.in.k.strides[1] = std::int64_t{1} << 61; });
    expect_error("which no memory can hold",
                 [](Call& c) { c.in.k.strides[1] = std::numeric_limits<std::int64_t>::min(); });
    expect_error("at a null address", [](Call& c) { c.in.v.data = nullptr; });
}

TEST(AttendErrors, Scale) {
    expect_error("must be finite", [](Call& c) { c.in.scale = std::nan(""); });
    expect_error("must be finite", [](Call& c) { c.in.scale = -std::numeric_limits<double>::infinity(); });
    expect_error("beyond the range of f32", [](Call& c) { c.in.scale = 1e60; });
}

TEST(AttendErrors, LengthsAndPositions) {
    expect_error("key_lengths[1] is 6", [](Call& c) { c.numbers[1] = 6, c.in.mask.key_lengths = c.integers(); });
    expect_error("key_lengths[0] is -1", [](Call& c) { c.numbers[0] = -1, c.in.mask.key_lengths = c.integers(); });
    expect_error("i32 or i64 [B] = [2]", [](Call& c) { c.in.mask.key_lengths = c.integers().slice(0, 0, 1); });
    expect_error("i32 or i64 [B] = [2]",
                 [](Call& c) { c.in.mask.key_lengths = c.integers(), c.in.mask.key_lengths.dtype = DType::f32; });
    expect_error("offsets is i64 [1]",
                 [](Call& c) { c.in.positions = Positions::at(c.integers().slice(0, 0, 1)); });
    expect_error("offsets is no tensor", [](Call& c) { c.in.positions.align = Positions::Align::per_sequence; });
    expect_error("use Positions::at", [](Call& c) { c.in.positions.offsets = c.integers(); });
    expect_error("the window is -2", [](Call& c) { c.in.mask.window_left = -2; });
}

TEST(AttendErrors, MaskTensors) {
    static const std::uint8_t bytes[64] = {};
    static const float floats[64] = {};
    expect_error("does not broadcast to [B,H,T,S] = [2, 4, 3, 5]", [](Call& c) {
        c.in.mask.keep = ConstTensorView(bytes, DType::boolean, {2, 5});
    });
    expect_error("does not broadcast", [](Call& c) {
        c.in.mask.bias = ConstTensorView(floats, DType::f32, {1, 1, 1, 1, 5});
    });
    expect_error("the keep mask is f32", [](Call& c) {
        c.in.mask.keep = ConstTensorView(floats, DType::f32, {3, 5});
    });
    expect_error("the bias is bool", [](Call& c) {
        c.in.mask.bias = ConstTensorView(bytes, DType::boolean, {3, 5});
    });
    expect_error("at a null address", [](Call& c) {
        c.in.mask.bias = ConstTensorView(nullptr, DType::f32, {3, 5});
    });
}

TEST(AttendErrors, PathChecksItsInputsToo) {
    Call call;
    call.in.k.strides[3] = 2;
    EXPECT_THROW(attend_path(call.in), Error);
}

}  // namespace
}  // namespace headwise::test
