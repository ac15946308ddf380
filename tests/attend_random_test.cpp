// Random problems: every rule of a mask together with every layout, type and path, judged by the reference. The seed of
// a failing round is printed; it makes the same problem again.
#include <initializer_list>

#include "attend_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendRandomTest : public IsaTest {};

// One random problem and everything that its views point at.
class RandomProblem {
public:
    explicit RandomProblem(unsigned seed) : engine_(seed), shape_(random_shape()), x_(shape_, layout(), seed) {
        in_ = x_.inputs();
        in_.mask.causal = chance(2);
        if (chance(3)) in_.mask.window_left = below(shape_.S + 3);
        if (chance(3)) in_.mask.window_right = below(shape_.S + 3);
        add_positions();
        if (chance(3)) add_lengths();
        if (chance(3)) add_keep();
        if (chance(3)) add_bias();
        if (chance(4)) in_.scale = pick<double>({0, -0.3, 1, 7.5});
        poison_what_nobody_sees();
    }

    const AttendInputs& inputs() const { return in_; }
    const Shape& shape() const { return shape_; }
    std::string text() const {
        return headwise::text(shape_.text(), " causal ", in_.mask.causal, " window ", in_.mask.window_left, ",",
                              in_.mask.window_right, " keep ", in_.mask.keep, " bias ", in_.mask.bias, " lengths ",
                              in_.mask.key_lengths);
    }
    Layout layout() { return pick<Layout>({Layout::bthd, Layout::bhtd, Layout::gaps}); }
    template <class T>
    T pick(std::initializer_list<T> values) {
        return values.begin()[below(static_cast<std::int64_t>(values.size()))];
    }

private:
    std::int64_t below(std::int64_t limit) {
        return static_cast<std::int64_t>(engine_() % static_cast<unsigned>(limit));
    }
    bool chance(std::int64_t of) { return below(of) == 0; }

    Shape random_shape() {
        Shape s;
        s.G = 1 + below(3);
        s.H = s.G * pick<std::int64_t>({1, 1, 2, 3, 4, 7});
        s.B = 1 + below(3);
        s.T = pick<std::int64_t>({0, 1, 2, 5, 6, 7, 13, 33, 70});
        s.S = pick<std::int64_t>({0, 1, 3, 16, 17, 31, 127, 128, 129, 200, 260});
        s.D = pick<std::int64_t>({1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 40, 64, 65, 80, 129});
        s.Dv = chance(2) ? s.D : pick<std::int64_t>({0, 1, 5, 8, 15, 16, 18, 33, 48, 64, 100});
        s.dtype = pick<DType>({DType::f32, DType::f32, DType::bf16, DType::f16, DType::f64});
        return s;
    }

    void add_positions() {
        if (chance(3)) in_.positions = Positions::top_left();
        if (!chance(3)) return;
        offsets_ = Tensor(DType::i64, {shape_.B});
        for (std::int64_t b = 0; b < shape_.B; ++b) {
            offsets_.data<std::int64_t>()[b] = below(shape_.S + shape_.T + 9) - shape_.T - 4;
        }
        in_.positions = Positions::at(std::as_const(offsets_).view());
    }

    void add_lengths() {
        lengths_ = Tensor(DType::i32, {shape_.B});
        for (std::int64_t b = 0; b < shape_.B; ++b) {
            lengths_.data<std::int32_t>()[b] = static_cast<std::int32_t>(below(shape_.S + 1));
        }
        in_.mask.key_lengths = std::as_const(lengths_).view();
    }

    // A shape that broadcasts to [B,H,T,S]: some leading axes left out, some axes 1.
    std::vector<std::int64_t> broadcast_shape() {
        std::vector<std::int64_t> sizes = {shape_.B, shape_.H, shape_.T, shape_.S};
        for (std::int64_t& size : sizes) size = chance(4) ? 1 : size;
        sizes.erase(sizes.begin(), sizes.begin() + below(4));
        return sizes;
    }

    void add_keep() {
        keep_ = Tensor(DType::boolean, broadcast_shape());
        const std::int64_t rarity = 1 + below(4);
        for (std::int64_t i = 0; i < keep_.count(); ++i) keep_.data<std::uint8_t>()[i] = !chance(rarity);
        in_.mask.keep = std::as_const(keep_).view();
    }

    void add_bias() {
        bias_ = Tensor(pick<DType>({DType::f32, DType::bf16, DType::f16, DType::f64}), broadcast_shape());
        for (std::int64_t i = 0; i < bias_.count(); ++i) {
            const double value = chance(5) ? -kInf : static_cast<double>(below(64)) / 8 - 4;
            store_f64(bias_.view().data, bias_.dtype(), i, value);
        }
        in_.mask.bias = std::as_const(bias_).view();
    }

    // NaN and Inf in keys and values that no row of their kv head sees: they must not reach any output.
    void poison_what_nobody_sees() {
        const std::int64_t group = shape_.H / shape_.G;
        for (std::int64_t b = 0; b < shape_.B; ++b)
            for (std::int64_t g = 0; g < shape_.G; ++g)
                for (std::int64_t t = 0; t < shape_.S; ++t) {
                    bool seen = false;
                    for (std::int64_t h = g * group; h < (g + 1) * group && !seen; ++h)
                        for (std::int64_t i = 0; i < shape_.T && !seen; ++i) seen = visible(in_, b, h, i, t);
                    if (seen) continue;
                    for (std::int64_t d = 0; d < shape_.D; ++d) x_.k.set(b, t, g, d, d % 2 == 0 ? kNaN : kInf);
                    for (std::int64_t d = 0; d < shape_.Dv; ++d) x_.v.set(b, t, g, d, d % 2 == 0 ? -kInf : kNaN);
                }
    }

    std::mt19937 engine_;
    Shape shape_;
    Operands x_;
    AttendInputs in_;
    Tensor offsets_, lengths_, keep_, bias_;
};

TEST_P(AttendRandomTest, MatchesTheReferenceOnBothPaths) {
    const unsigned rounds = full_grid() ? 250 : 40;
    for (unsigned seed = 1; seed <= rounds; ++seed) {
        RandomProblem problem(seed);
        SCOPED_TRACE(text("seed ", seed, ": ", problem.text()));
        const bool f64 = problem.shape().dtype == DType::f64;
        How how{.out = f64 || problem.pick<bool>({true, false}) ? problem.shape().dtype : DType::f32};
        how.layout = problem.layout();
        how.execution.threads = problem.pick<int>({1, 2, 3});
        expect_matches(table(), problem.inputs(), how);
        if (HasFailure()) break;
        if (f64 || problem.shape().T == 0) continue;
        const std::string direct = bytes_of(Result(table(), problem.inputs(), {.path = Path::direct}));
        const std::string packed = bytes_of(Result(table(), problem.inputs(), {.path = Path::packed}));
        ASSERT_EQ(direct == packed, true) << "the two paths differ";
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendRandomTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
