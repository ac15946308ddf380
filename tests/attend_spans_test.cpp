// Masks of several spans and of lists: keep_first, chunks, starts, documents, blocks. By structural probes and on random
// numbers, and that hidden tiles are not touched.
#include <sys/mman.h>

#include <new>

#include "attend_cases.h"
#include "grid.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendSpansTest : public IsaTest {
protected:
    static void expect_seen(const Shape& shape, const Mask& mask, const Positions& positions = {}) {
        test::expect_seen(table(), shape, mask, positions);
    }
};

TEST_P(AttendSpansTest, FirstKeysBesideAWindow) {
    for (const std::int64_t kept : {1, 4, 127, 128, 129, 200, 400}) {
        for (const auto& [left, right] : {std::pair{7, 0}, {-1, 2}, {0, 0}, {130, 5}}) {
            expect_seen({.T = 30, .S = 400, .H = 2, .G = 1}, window(left, right, kept));
            expect_seen({.T = 45, .S = 400, .H = 2, .G = 1}, window(left, right, kept) & causal(),
                        Positions::top_left());
        }
    }
    const Tensor lengths = integers(DType::i32, {2, 300}), starts = integers(DType::i32, {0, 3});
    expect_seen({.B = 2, .T = 40, .S = 400}, window(9, 0, 5) & key_lengths(lengths) & key_starts(starts));
}

TEST_P(AttendSpansTest, ChunksCountByFloorAlsoBelowZero) {
    const Tensor offsets = integers(DType::i64, {-7, 130}), origins = integers(DType::i32, {3, -11});
    for (const std::int64_t chunk : {1, 5, 64, 128, 129, 1000}) {
        expect_seen({.B = 2, .T = 40, .S = 300}, chunked(chunk), Positions::at(offsets));
        expect_seen({.B = 2, .T = 40, .S = 300}, chunked(chunk, origins) & causal(), Positions::at(offsets));
        expect_seen({.T = 40, .S = 300}, chunked(chunk) & window(3, 2, 2));
    }
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    const Tensor far = integers(DType::i64, {kMost, -kMost - 1});  // nothing may overflow
    const Operands x({.B = 2, .T = 5, .S = 9});
    AttendInputs in = x.inputs();
    in.mask = chunked(kMost, far), in.positions = Positions::at(far);
    EXPECT_EQ(bytes_of(Result(table(), in, {.path = Path::direct})),
              bytes_of(Result(table(), in, {.path = Path::packed})));
}

TEST_P(AttendSpansTest, PaddingOnTheLeft) {
    const Tensor starts = integers(DType::i64, {0, 1, 127, 128, 199, 200}),
                 lengths = integers(DType::i32, {200, 200, 150, 100, 200, 200});
    for (const std::int64_t T : {1, 40}) {
        expect_seen({.B = 6, .T = T, .S = 200, .H = 2}, key_starts(starts));
        expect_seen({.B = 6, .T = T, .S = 200, .H = 2}, key_starts(starts) & causal() & key_lengths(lengths));
    }
}

TEST_P(AttendSpansTest, Documents) {
    const Tensor queries = integers(DType::i32, {0, 3, 3, 20, 41, 50}),
                 keys = integers(DType::i64, {0, 130, 131, 131, 260, 300});
    const Tensor offsets = integers(DType::i64, {0, 5, -3, 100, -20});
    for (const Mask& mask : {Mask{}, causal(), window(6, 0), window(4, 1, 2), chunked(7), chunked(5) & causal()}) {
        for (const Positions& positions : {Positions{}, Positions::top_left(), Positions::at(offsets)}) {
            expect_seen({.T = 50, .S = 300, .H = 4, .G = 2}, mask & documents(queries, keys), positions);
            expect_seen({.T = 50, .S = 50, .H = 4, .G = 2}, mask & documents(queries), positions);
        }
    }
}

// Lists for query blocks of 16 rows and key blocks of 32: block n of the rows sees n, n + 2, ... Broadcast over B.
struct Lists {
    Tensor counts{DType::i32, {1, 2, 4}}, blocks{DType::i64, {1, 2, 4, 10}};

    Lists() {
        for (std::int64_t h = 0; h < 2; ++h)
            for (std::int64_t n = 0; n < 4; ++n) {
                std::int32_t& count = counts.data<std::int32_t>()[h * 4 + n];
                std::int64_t* const row = blocks.data<std::int64_t>() + (h * 4 + n) * 10;
                std::fill_n(row, 10, -5);
                count = 0;
                for (std::int64_t block = n + h; block < 10; block += 2 + h) row[count++] = block;
                if (n == 3) count = 0;
            }
    }
    Mask mask() const {
        return {.blocks = {.query_block = 16, .key_block = 32, .counts = counts.view(), .blocks = blocks.view()}};
    }
};

TEST_P(AttendSpansTest, ListsOfBlocks) {
    const Lists lists;
    expect_seen({.B = 2, .T = 60, .S = 300, .H = 2, .G = 1}, lists.mask());
    expect_seen({.B = 2, .T = 60, .S = 300, .H = 2, .G = 2}, lists.mask() & causal() & window(200, 3, 4));
}

// A copy of 4 tiles of [128,2,16] keys; a forbidden one cannot be read without a fault.
class FourTiles {
public:
    explicit FourTiles(const Operand& from)
        : data_(mmap(nullptr, 4 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        if (data_ == MAP_FAILED) throw std::bad_alloc();
        std::memcpy(data_, from.view.data, 4 * kBytes);
    }
    FourTiles(const FourTiles&) = delete;
    FourTiles& operator=(const FourTiles&) = delete;
    ~FourTiles() { munmap(data_, 4 * kBytes); }

    const void* data() const { return data_; }
    void forbid(std::size_t tile) const {
        if (mprotect(static_cast<char*>(data_) + tile * kBytes, kBytes, PROT_NONE) != 0) throw std::bad_alloc();
    }

private:
    static constexpr std::size_t kBytes = 128 * 2 * 16 * sizeof(float);  // whole pages
    void* data_;
};

// Keys and values of tiles that nobody sees lie where no memory is: reading them would end the program.
TEST_P(AttendSpansTest, HiddenTilesAreNotTouched) {
    const std::int64_t T = 50, S = 512;
    Operands x({.T = T, .S = S, .H = 2, .G = 2, .D = 16, .Dv = 16});
    Tensor some(DType::boolean, {T, S}), added(DType::f32, {T, S});
    for (std::int64_t i = 0; i < T * S; ++i) {
        const std::int64_t t = i % S;
        const bool shown = t < 128 || (t >= 256 && t < 384 && t % 3 != 0);
        some.data<std::uint8_t>()[i] = shown;
        added.data<float>()[i] = shown ? 0.5f : -kInf;
    }
    const std::int32_t count = 2;
    const std::int64_t listed[] = {0, 2};
    Mask lists;
    lists.blocks = {.query_block = 64,
                    .key_block = 128,
                    .counts = ConstTensorView(&count, DType::i32, {1, 1, 1}),
                    .blocks = ConstTensorView(listed, DType::i64, {1, 1, 1, 2})};
    const std::int32_t rows[] = {0, 20, 20, 50}, keys[] = {0, 128, 256, 512};
    Mask packed = documents(ConstTensorView(rows, DType::i32, {4}), ConstTensorView(keys, DType::i32, {4}));
    for (const Mask& mask : {keep(some), bias(added), lists, packed & window(-1, 0) & keep(some)}) {
        AttendInputs in = x.inputs();
        in.mask = mask, in.positions = Positions::top_left();
        const std::string whole = bytes_of(Result(table(), in, {.path = Path::direct}));
        const FourTiles k(x.k), v(x.v);
        k.forbid(1), k.forbid(3), v.forbid(1), v.forbid(3);
        in.k.data = k.data(), in.v.data = v.data();
        for (const Path path : {Path::direct, Path::packed}) {
            for (const int threads : {1, 2}) {
                EXPECT_TRUE(whole ==
                            bytes_of(Result(table(), in, {.path = path, .execution = {.threads = threads}})));
            }
        }
    }
}

TEST(MaskIntersection, KeepFirstNeedsAWindowAndAgreement) {
    const Mask both = window(5, -1, 3) & window(-1, 2, 3) & causal();
    EXPECT_EQ(both.window_left, 5);
    EXPECT_EQ(both.window_right, 2);
    EXPECT_EQ(both.keep_first, 3);
    EXPECT_EQ((window(5, 0, 3) & causal()).keep_first, 3);
    EXPECT_EQ((causal() & window(5, 0, 3)).keep_first, 3);
    EXPECT_THROW(window(5, 0, 3) & window(4, 0), Error);
    EXPECT_THROW(window(5, 0, -1), Error);
}

TEST(MaskIntersection, OnePartOfEachKind) {
    const Tensor numbers = integers(DType::i32, {0, 1});
    EXPECT_EQ((chunked(4) & causal() & chunked(4)).chunk, 4);
    EXPECT_EQ((causal() & chunked(4, numbers)).chunk_origins.size(0), 2);
    EXPECT_THROW(chunked(4) & chunked(5), Error);
    EXPECT_THROW(chunked(4) & chunked(4, numbers), Error);
    EXPECT_THROW(chunked(0), Error);
    EXPECT_THROW(key_starts(numbers) & key_starts(numbers), Error);
    EXPECT_THROW(key_lengths(numbers) & key_lengths(numbers), Error);
    EXPECT_THROW(documents(numbers) & documents(numbers), Error);
    const Mask lists{.blocks = {.query_block = 1, .key_block = 1}};
    EXPECT_EQ((causal() & lists).blocks.key_block, 1);
    EXPECT_THROW(lists & lists, Error);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendSpansTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
