// The row law: the bits of an output row depend on its own query and on the keys that it sees, on nothing else.
#include "attend_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendBitsTest : public IsaTest {};

// Masks that make hidden, edge and full tiles.
std::vector<Mask> masks(const Tensor& some, const Tensor& added) {
    return {Mask{}, causal(), window(70, 10), causal() & window(140, -1), keep(some) & causal(), bias(added)};
}

std::string bytes_of_row(const ConstTensorView& out, std::int64_t b, std::int64_t t, std::int64_t h) {
    return std::string(static_cast<const char*>(head_row(out, b, t, h)),
                       static_cast<std::size_t>(out.size(3)) * size_of(out.dtype));
}

TEST_P(AttendBitsTest, PathsThreadsAndRepeats) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
        const Operands x({.B = 2, .T = 61, .S = 300, .H = 6, .G = 2, .D = 24, .Dv = 20, .dtype = dtype});
        Tensor some(DType::boolean, {61, 300}), added(DType::f32, {6, 61, 300});
        std::mt19937 engine(5);
        for (std::int64_t i = 0; i < some.count(); ++i) some.data<std::uint8_t>()[i] = engine() % 3 == 0;
        for (std::int64_t i = 0; i < added.count(); ++i) {
            added.data<float>()[i] = engine() % 4 == 0 ? -kInf : static_cast<float>(engine() % 5);
        }
        for (const Mask& mask : masks(some, added)) {
            AttendInputs in = x.inputs();
            in.mask = mask;
            const std::string first = bytes_of(Result(table(), in, {.path = Path::direct}));
            for (const Path path : {Path::direct, Path::packed}) {
                for (const int threads : {1, 2, 5}) {
                    EXPECT_EQ(first,
                              bytes_of(Result(table(), in, {.path = path, .execution = {.threads = threads}})));
                }
            }
        }
    }
}

TEST_P(AttendBitsTest, RowAloneAndInABatch) {
    const Operands x({.B = 3, .T = 40, .S = 290, .H = 4, .G = 2, .D = 17, .Dv = 9});
    for (const Mask& mask : {Mask{}, causal(), window(64, 5)}) {
        AttendInputs in = x.inputs();
        in.mask = mask;
        const Result all(table(), in);
        for (const std::int64_t b : {0, 2}) {
            for (std::int64_t t = 0; t < 40; t += 3) {
                AttendInputs one = in;
                one.q = in.q.slice(0, b, 1).slice(1, t, 1), one.k = in.k.slice(0, b, 1),
                one.v = in.v.slice(0, b, 1);
                const std::int64_t offset[] = {290 - 40 + t};
                one.positions = Positions::at(ConstTensorView(offset, DType::i64, {1}));
                const Result alone(table(), one);
                for (std::int64_t h = 0; h < 4; ++h) {
                    EXPECT_EQ(bytes_of_row(all.out.view, b, t, h), bytes_of_row(alone.out.view, 0, 0, h));
                }
            }
        }
    }
}

TEST_P(AttendBitsTest, KeysBeyondTheVisibleOnesDoNotCount) {
    const std::int64_t S = 300;
    Operands x({.T = 30, .S = S, .H = 2, .G = 1, .D = 16, .Dv = 16});
    for (const std::int64_t seen : {1, 7, 127, 128, 129, 200}) {
        const std::int64_t length[] = {seen};
        for (const Path path : {Path::direct, Path::packed}) {
            AttendInputs in = x.inputs();
            in.mask = key_lengths(ConstTensorView(length, DType::i64, {1}));
            AttendInputs trimmed = x.inputs();
            trimmed.k = in.k.slice(1, 0, seen), trimmed.v = in.v.slice(1, 0, seen);
            EXPECT_EQ(bytes_of(Result(table(), in, {.path = path})),
                      bytes_of(Result(table(), trimmed, {.path = path})));
        }
    }
}

// V that is almost nothing: a hidden key must not even change the sign of a zero.
TEST_P(AttendBitsTest, HiddenKeysLeaveZerosAlone) {
    Operands x({.T = 9, .S = 40, .H = 1, .G = 1, .D = 4, .Dv = 16});
    x.v.fill([](auto, std::int64_t t, auto, std::int64_t c) { return (t + c) % 2 == 0 ? 1e-45 : -1e-45; });
    x.k.fill([](auto, std::int64_t t, auto, auto) { return static_cast<double>(t % 7); });
    AttendInputs in = x.inputs();
    in.mask = causal();
    in.positions = Positions::top_left();
    EXPECT_EQ(bytes_of(Result(table(), in, {.path = Path::direct})),
              bytes_of(Result(table(), in, {.path = Path::packed})));
}

// The host's own threads run the tasks in any order.
TEST_P(AttendBitsTest, TasksInAnyOrder) {
    const auto backwards = [](void*, std::int64_t tasks, void (*task)(void*, std::int64_t), void* arg) {
        for (std::int64_t i = tasks; i-- > 0;) task(arg, i);
    };
    const Executor executor{.context = nullptr, .width = 7, .parallel_for = backwards};
    const Operands x({.B = 2, .T = 200, .S = 200, .H = 4, .G = 2, .D = 32, .Dv = 32});
    AttendInputs in = x.inputs();
    in.mask = causal();
    EXPECT_EQ(bytes_of(Result(table(), in)),
              bytes_of(Result(table(), in, {.execution = {.threads = 7, .executor = &executor}})));
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendBitsTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
