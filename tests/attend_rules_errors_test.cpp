// What attend() refuses of masks and of the score pipeline, in words, before it touches memory.
#include <functional>

#include "attend_cases.h"
#include "kernels/dispatch.h"
#include "refused.h"

namespace headwise::test {
namespace {

// A call that is right; every test breaks one thing. The numbers are lengths, cu_seqlens or blocks.
struct Call {
    explicit Call(std::int64_t B) : x({.B = B, .T = 3, .S = 5, .H = 4, .G = 2, .D = 8, .Dv = 6}) {
        in = x.inputs();
        out = Tensor(DType::f32, {B, 3, 4, 6});
    }
    Operands x;
    Tensor out;
    std::int64_t numbers[8] = {0, 1, 2, 3, 4, 5, 6, 7}, more[8] = {};
    float floats[400] = {};
    AttendInputs in;

    ConstTensorView list(std::int64_t count) const { return ConstTensorView(numbers, DType::i64, {count}); }
    ConstTensorView other(std::int64_t count) const { return ConstTensorView(more, DType::i64, {count}); }
    ConstTensorView f32(std::initializer_list<std::int64_t> sizes) const {
        return ConstTensorView(floats, DType::f32, sizes);
    }
    // Documents of 1 and 2 rows over 2 and 3 keys.
    void make_documents() {
        numbers[0] = 0, numbers[1] = 1, numbers[2] = 3;
        more[0] = 0, more[1] = 2, more[2] = 5;
        in.mask.documents = {.queries = list(3), .keys = other(3)};
    }
    // Blocks of 2 rows and 2 keys: rows 0 and 1 see blocks 0 and 2, row 2 sees block 1.
    void make_blocks() {
        numbers[0] = 2, numbers[1] = 1;
        more[0] = 0, more[1] = 2, more[2] = 1, more[3] = -1;
        in.mask.blocks = {.query_block = 2,
                          .key_block = 2,
                          .counts = ConstTensorView(numbers, DType::i64, {1, 1, 2}),
                          .blocks = ConstTensorView(more, DType::i64, {1, 1, 2, 2})};
    }
};

void expect_error(const std::string& words, std::int64_t B, const std::function<void(Call&)>& breaks) {
    Call call(B);
    call.out.data<float>()[0] = 7;
    breaks(call);
    std::string message = "accepted";
    try {
        attend(call.in, {.out = call.out.view()});
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_EQ(call.out.data<float>()[0], 7) << "memory was touched";
        message = error.what();
    }
    EXPECT_NE(message.find(words), std::string::npos) << message << "\n  lacks: " << words;
    EXPECT_EQ(message.substr(0, 8), words == "accepted" ? words : "attend: ");
}
void expect_error(const std::string& words, const std::function<void(Call&)>& breaks) {
    expect_error(words, 2, breaks);
}

TEST(AttendRulesErrors, RightCallsAreAccepted) {
    expect_error("accepted", 1, [](Call& c) { c.make_documents(); });
    expect_error("accepted", 1, [](Call& c) { c.make_blocks(); });
    expect_error("accepted", [](Call& c) { c.make_blocks(); });
    expect_error("accepted", [](Call& c) {
        c.in.softcap = 5, c.in.tau = c.f32({2, 3}), c.in.alibi_slopes = c.f32({4}), c.in.sinks = c.f32({4});
        c.in.distance_bias.table = c.f32({4, 1}), c.in.gate = c.f32({2, 3, 4, 6}), c.in.dropout.probability = 0.5;
        c.in.mask = chunked(2, c.list(2)) & window(1, 1, 2) & key_starts(c.list(2));
    });
}

TEST(AttendRulesErrors, Intervals) {
    expect_error("keep_first is -1", [](Call& c) { c.in.mask.keep_first = -1; });
    expect_refused([] { static_cast<void>(causal() & Mask{.keep_first = -4}); }, "keep_first is -4");
    expect_error("the window is 3 and -2",
                 [](Call& c) { c.in.mask.window_left = 3, c.in.mask.window_right = -2; });
    expect_error("the chunk is -4", [](Call& c) { c.in.mask.chunk = -4; });
    expect_error("chunk_origins but no chunk", [](Call& c) { c.in.mask.chunk_origins = c.list(2); });
    expect_error("chunk_origins is i64 [3]", [](Call& c) { c.in.mask = chunked(2, c.list(3)); });
    expect_error("key_starts is i64 [1]", [](Call& c) { c.in.mask = key_starts(c.list(1)); });
    expect_error("key_starts[1] is 6", [](Call& c) { c.numbers[1] = 6, c.in.mask = key_starts(c.list(2)); });
    expect_error("key_starts[0] is -1", [](Call& c) { c.numbers[0] = -1, c.in.mask = key_starts(c.list(2)); });
}

TEST(AttendRulesErrors, Documents) {
    expect_error("in a batch of 2", [](Call& c) { c.make_documents(); });
    const auto broken = [](const std::string& words, const std::function<void(Call&)>& breaks) {
        expect_error(words, 1, [&](Call& c) { c.make_documents(), breaks(c); });
    };
    broken("documents.queries[0] is 1", [](Call& c) { c.numbers[0] = 1; });
    broken("documents.queries[0] is -1", [](Call& c) { c.numbers[0] = -1; });
    broken("documents.queries falls from 4 to 3 at [2]", [](Call& c) { c.numbers[1] = 4; });
    broken("documents.keys falls from 0 to -1 at [1]", [](Call& c) { c.more[1] = -1; });
    broken("documents.queries ends with 2 but must end with all 3", [](Call& c) { c.numbers[2] = 2; });
    broken("documents.keys ends with 6 but must end with all 5", [](Call& c) { c.more[2] = 6; });
    broken("documents.keys is i64 [2]", [](Call& c) { c.in.mask.documents.keys = c.other(2); });
    broken("but must be i32 or i64 [documents + 1]", [](Call& c) { c.in.mask.documents.queries = c.list(0); });
    broken("but must be i32 or i64 [documents + 1]",
           [](Call& c) { c.in.mask.documents.queries.dtype = DType::f32; });
    broken("have keys but no queries", [](Call& c) { c.in.mask.documents.queries = {}; });
    broken("T = 3 and S = 5 differ", [](Call& c) { c.in.mask.documents.keys = {}; });
    broken("cannot be given with documents", [](Call& c) { c.in.mask.key_lengths = c.list(1); });
    broken("cannot be given with documents", [](Call& c) { c.in.mask.key_starts = c.list(1); });
    broken("cannot be given with documents", [](Call& c) { c.in.mask = c.in.mask & chunked(2, c.list(1)); });
    broken("offsets is i64 [1] but must be i32 or i64 [documents] = [2]",
           [](Call& c) { c.in.positions = Positions::at(c.list(1)); });
}

TEST(AttendRulesErrors, BlockLists) {
    const auto broken = [](const std::string& words, const std::function<void(Call&)>& breaks) {
        expect_error(words, [&](Call& c) { c.make_blocks(), breaks(c); });
    };
    broken("blocks are of 0 rows and 2 keys", [](Call& c) { c.in.mask.blocks.query_block = 0; });
    broken("blocks are of 2 rows and -2 keys", [](Call& c) { c.in.mask.blocks.key_block = -2; });
    broken("blocks.counts is no tensor", [](Call& c) { c.in.mask.blocks.counts = {}; });
    broken("blocks.blocks is no tensor", [](Call& c) { c.in.mask.blocks.blocks = {}; });
    broken("blocks.counts is f32", [](Call& c) { c.in.mask.blocks.counts.dtype = DType::f32; });
    broken("blocks.counts is i64 [1, 1, 2]", [](Call& c) { c.in.mask.blocks.query_block = 1; });
    broken("where B and H may be 1", [](Call& c) {
        c.in.mask.blocks.blocks = ConstTensorView(c.more, DType::i64, {1, 2, 2, 2});
    });
    broken("blocks.counts[0, 0, 1] is 3", [](Call& c) { c.numbers[1] = 3; });
    broken("blocks.counts[0, 0, 0] is -1", [](Call& c) { c.numbers[0] = -1; });
    broken("blocks.blocks[0, 0, 0, 1] is 3", [](Call& c) { c.more[1] = 3; });
    broken("blocks.blocks[0, 0, 0, 0] is -1", [](Call& c) { c.more[0] = -1; });
    broken("is 0 after 0; the list must rise", [](Call& c) { c.more[1] = 0; });
    broken("at a null address", [](Call& c) { c.in.mask.blocks.counts.data = nullptr; });
}

TEST(AttendRulesErrors, NumbersOfTheScorePipeline) {
    for (const double cap : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
        expect_error("must be positive and finite, or 0", [&](Call& c) { c.in.softcap = cap; });
    }
    expect_error("softcap 1e-60 is beyond the range of f32", [](Call& c) { c.in.softcap = 1e-60; });
    expect_error("softcap 1e+60 is beyond the range of f32", [](Call& c) { c.in.softcap = 1e60; });
    for (const double p : {-0.1, 1.0, 1.5, std::nan("")}) {
        expect_error("must be in [0, 1)", [&](Call& c) { c.in.dropout.probability = p; });
    }
}

TEST(AttendRulesErrors, TensorsOfTheScorePipeline) {
    expect_error("tau is f32 [3, 2] but must be f32 [2, 3]", [](Call& c) { c.in.tau = c.f32({3, 2}); });
    expect_error("tau is bf16", [](Call& c) { c.in.tau = c.f32({2, 3}), c.in.tau.dtype = DType::bf16; });
    expect_error("alibi_slopes is f32 [2] but must be f32 [4]", [](Call& c) { c.in.alibi_slopes = c.f32({2}); });
    expect_error("sinks is f32 [4, 1] but must be f32 [4]", [](Call& c) { c.in.sinks = c.f32({4, 1}); });
    expect_error("sinks is f32 [4] strides", [](Call& c) {
        c.in.sinks = ConstTensorView(c.floats, DType::f32, {4}, {std::int64_t{1} << 61});
    });
    expect_error("distance_bias.table is f32 [4, 0]", [](Call& c) { c.in.distance_bias.table = c.f32({4, 0}); });
    expect_error("distance_bias.table is f32 [2, 3] but must be f32 [4, 3]", [](Call& c) {
        c.in.distance_bias.table = c.f32({2, 3});
    });
    expect_error("gate is f32 [2, 3]", [](Call& c) { c.in.gate = c.f32({2, 3}); });
    expect_error("[B,T,H,Dv] = [2, 3, 4, 6]", [](Call& c) { c.in.gate = c.f32({2, 3, 4, 5}); });
    expect_error("gate is f16", [](Call& c) { c.in.gate = c.f32({2, 3, 4}), c.in.gate.dtype = DType::f16; });
    expect_error("its innermost stride must be 1", [](Call& c) {
        c.in.gate = ConstTensorView(c.floats, DType::f32, {2, 3, 4, 6}, {144, 48, 12, 2});
    });
    expect_error("sinks is f32 [4] at a null address",
                 [](Call& c) { c.in.sinks = ConstTensorView(nullptr, DType::f32, {4}); });
}

TEST(AttendRulesErrors, ZeroSizesAreLegal) {
    Operands x({.T = 0, .S = 0, .H = 2, .G = 1});
    const Tensor none = integers(DType::i32, {0}), empty_documents = integers(DType::i64, {0, 0, 0});
    Operand out(1, 0, 2, 8, DType::f32, Layout::bthd);
    for (const Tensor* cu : {&none, &empty_documents}) {
        AttendInputs in = x.inputs();
        in.mask = documents(*cu, *cu) & causal();
        attend(in, {.out = out.view});
    }
    Operands queries({.T = 3, .S = 0, .H = 2, .G = 1});  // rows without a key
    const Tensor rows = integers(DType::i32, {0, 3}), keys = integers(DType::i32, {0, 0});
    AttendInputs in = queries.inputs();
    in.mask = documents(rows, keys) & window(2, 0, 1) & chunked(2);
    const Result result(kernels(), in);
    for (int n = 0; n < 6; ++n) EXPECT_EQ(result.lse.data<float>()[n], -kInf);
}

}  // namespace
}  // namespace headwise::test
