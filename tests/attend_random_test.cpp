// Random problems: every rule of masks and scores together with every layout, type and path, judged by the reference. The seed of
// a failing round is printed; it makes the same problem again.
#include <algorithm>
#include <initializer_list>
#include <list>

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
        add_intervals();
        if (shape_.B == 1 && chance(3)) {
            add_documents();
        } else {
            add_counts();
        }
        add_positions();
        if (chance(4)) add_blocks();
        if (chance(3)) add_keep();
        if (chance(3)) add_bias();
        add_scores();
        add_ends();
        poison_what_nobody_sees();
    }

    const AttendInputs& inputs() const { return in_; }
    const Shape& shape() const { return shape_; }
    std::string text() const {
        return headwise::text(shape_.text(), " causal ", in_.mask.causal, " window ", in_.mask.window_left, ",",
                              in_.mask.window_right, " keep_first ", in_.mask.keep_first, " chunk ",
                              in_.mask.chunk, " origins ", in_.mask.chunk_origins, " keep ", in_.mask.keep,
                              " bias ", in_.mask.bias, " lengths ", in_.mask.key_lengths, " starts ",
                              in_.mask.key_starts, " documents ", in_.mask.documents.queries, " blocks ",
                              in_.mask.blocks.blocks, " softcap ", in_.softcap, " tau ", in_.tau, " alibi ",
                              in_.alibi_slopes, " table ", in_.distance_bias.table, " sinks ", in_.sinks, " gate ",
                              in_.gate, " dropout ", in_.dropout.probability);
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

    void add_intervals() {
        in_.mask.causal = chance(2);
        if (chance(3)) in_.mask.window_left = below(shape_.S + 3);
        if (chance(3)) in_.mask.window_right = below(shape_.S + 3);
        if (chance(2)) in_.mask.keep_first = chance(4) ? below(shape_.S + 3) : below(6);
        if (chance(4)) in_.mask.chunk = 1 + below(chance(2) ? 9 : 200);
    }

    // Integers of this type, value() each.
    template <class Value>
    ConstTensorView integers(DType dtype, std::vector<std::int64_t> sizes, Value value) {
        Tensor tensor(dtype, sizes);
        for (std::int64_t n = 0; n < tensor.count(); ++n) {
            const std::int64_t number = value();
            if (dtype == DType::i32) {
                tensor.data<std::int32_t>()[n] = static_cast<std::int32_t>(number);
            } else {
                tensor.data<std::int64_t>()[n] = number;
            }
        }
        return hold(std::move(tensor));
    }
    // f32 numbers around 0.
    ConstTensorView floats(std::vector<std::int64_t> sizes, double step) {
        Tensor tensor(DType::f32, sizes);
        for (std::int64_t n = 0; n < tensor.count(); ++n) {
            tensor.data<float>()[n] = static_cast<float>(step * static_cast<double>(below(33) - 16));
        }
        return hold(std::move(tensor));
    }
    ConstTensorView hold(Tensor tensor) {
        held_.push_back(std::move(tensor));
        return std::as_const(held_.back()).view();
    }

    void add_counts() {
        const auto some = [&] { return below(shape_.S + 1); };
        if (chance(3)) in_.mask.key_lengths = integers(DType::i32, {shape_.B}, some);
        if (chance(4)) in_.mask.key_starts = integers(DType::i64, {shape_.B}, some);
        if (in_.mask.chunk > 0 && chance(2)) {
            in_.mask.chunk_origins = integers(DType::i32, {shape_.B}, [&] { return below(40) - 20; });
        }
    }

    // Cuts [0, total] at random, also at equal places: empty documents.
    ConstTensorView cu_seqlens(std::int64_t total, std::int64_t documents) {
        std::vector<std::int64_t> cuts = {0, total};
        while (static_cast<std::int64_t>(cuts.size()) <= documents) cuts.push_back(below(total + 1));
        std::sort(cuts.begin(), cuts.end());
        std::size_t n = 0;
        return integers(pick<DType>({DType::i32, DType::i64}), {documents + 1}, [&] { return cuts[n++]; });
    }
    void add_documents() {
        const std::int64_t documents = 1 + below(5);
        in_.mask.documents.queries = cu_seqlens(shape_.T, documents);
        if (shape_.S != shape_.T || chance(2)) in_.mask.documents.keys = cu_seqlens(shape_.S, documents);
    }

    void add_positions() {
        if (chance(3)) in_.positions = Positions::top_left();
        if (!chance(3)) return;
        const ConstTensorView& documents = in_.mask.documents.queries;
        const std::int64_t sequences = documents.empty() ? shape_.B : documents.size(0) - 1;
        in_.positions = Positions::at(
            integers(DType::i64, {sequences}, [&] { return below(shape_.S + shape_.T + 9) - shape_.T - 4; }));
    }

    void add_blocks() {
        BlockList& list = in_.mask.blocks;
        list.query_block = pick<std::int64_t>({1, 3, 16, 64, 100}),
        list.key_block = pick<std::int64_t>({1, 7, 32, 128, 150});
        const std::int64_t rows = (shape_.T + list.query_block - 1) / list.query_block;
        const std::int64_t keys = (shape_.S + list.key_block - 1) / list.key_block;
        const std::int64_t B = chance(2) ? 1 : shape_.B, H = chance(2) ? 1 : shape_.H, rarity = 1 + below(4);
        std::vector<std::int64_t> counts, blocks;
        for (std::int64_t n = 0; n < B * H * rows; ++n) {
            const std::size_t first = blocks.size();
            for (std::int64_t key = 0; key < keys; ++key) {
                if (chance(rarity)) blocks.push_back(key);
            }
            counts.push_back(static_cast<std::int64_t>(blocks.size() - first));
            blocks.resize(first + static_cast<std::size_t>(keys), -9);  // what lies beyond the count is never read
        }
        std::size_t count = 0, block = 0;
        list.counts = integers(DType::i32, {B, H, rows}, [&] { return counts[count++]; });
        list.blocks = integers(DType::i64, {B, H, rows, keys}, [&] { return blocks[block++]; });
    }

    void add_scores() {
        if (chance(4)) in_.scale = pick<double>({0, -0.3, 1, 7.5});
        if (chance(4)) in_.softcap = pick<double>({0.5, 5, 50});
        if (chance(4)) in_.tau = floats({shape_.B, shape_.T}, 0.125);
        if (chance(4)) in_.alibi_slopes = floats({shape_.H}, 0.00390625);
        if (!chance(4)) return;
        in_.distance_bias = {.table = floats({shape_.H, 1 + below(40)}, 0.25), .first = below(60) - 40};
    }

    void add_ends() {
        // Where scores spread far, a sink above them, or dropout of the one weight that counts, leaves an output below the
        // range of f32, where no bound holds.
        const bool mild = !in_.scale;
        if (mild && chance(4)) {
            in_.sinks = floats({shape_.H}, chance(3) ? 1.5 : 0.5);
            if (chance(2)) held_.back().data<float>()[0] = -kInf;
        }
        if (chance(4)) {
            std::vector<std::int64_t> sizes = {shape_.B, shape_.T, shape_.H};
            if (chance(2)) sizes.push_back(shape_.Dv);
            Tensor gate = convert(floats(sizes, 0.125), chance(2) ? DType::f32 : shape_.dtype);
            in_.gate = hold(std::move(gate));
        }
        if (chance(6))
            in_.dropout = {.probability = pick<double>({0.1, 0.5, 0.9}), .seed = engine_() * 0x100000001ull};
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
    Tensor keep_, bias_;
    std::list<Tensor> held_;  // everything else that the inputs point at
};

TEST_P(AttendRandomTest, MatchesTheReferenceOnBothPaths) {
    const unsigned rounds = full_grid() ? 300 : 60;
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
