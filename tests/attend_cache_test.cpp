// Attention over a cache and over pages: the same bits as over the same numbers in plain views, whatever the kind, the
// size of pages and the memory around.
#include <algorithm>

#include "attend_cases.h"
#include "cache_cases.h"
#include "isas.h"

namespace headwise::test {
namespace {

class AttendCacheTest : public IsaTest {};

const std::vector<std::int64_t> kPageSizes = {1, 3, 16, 128, 200};

// Three sequences of different lengths; queries stand at the end of each.
struct Batch {
    Operands x;
    std::vector<std::int64_t> lengths, offsets;

    Batch(const Shape& shape, std::vector<std::int64_t> held) : x(shape), lengths(std::move(held)) {
        for (const std::int64_t length : lengths) offsets.push_back(length - shape.T);
    }
    ConstTensorView list(const std::vector<std::int64_t>& numbers) const {
        return ConstTensorView(numbers.data(), DType::i64, {static_cast<std::int64_t>(numbers.size())});
    }
    KvCacheConfig config(CacheKind kind) const {
        const Shape& s = x.shape;
        KvCacheConfig c{
            .batch = s.B, .kv_heads = s.G, .key_dim = s.D, .value_dim = s.Dv, .capacity = s.S, .kind = kind};
        c.type = s.dtype == DType::f32    ? CacheType::f32
                 : s.dtype == DType::bf16 ? CacheType::bf16
                                          : CacheType::f16;
        return c;
    }
    KvCache cache(const KvCacheConfig& c) const {
        KvCache made(c);
        made.append(x.k.view, x.v.view, list(lengths));
        return made;
    }
    // The same keys as views; NaN beyond the lengths is hidden by them.
    AttendInputs plain() const {
        AttendInputs in = x.inputs();
        in.mask = key_lengths(list(lengths));
        in.positions = Positions::at(list(offsets));
        return in;
    }
    AttendInputs cached(const KvCache& cache) const {
        AttendInputs in;
        in.q = x.q.view, in.cache = &cache;
        return in;
    }
};

Batch uneven(std::int64_t T, DType dtype = DType::f32) {
    return Batch({.B = 3, .T = T, .S = 420, .H = 6, .G = 2, .D = 24, .Dv = 20, .dtype = dtype}, {420, 63, 257});
}

std::vector<KvCacheConfig> every_config(const Batch& batch) {
    std::vector<KvCacheConfig> configs = {batch.config(CacheKind::contiguous), batch.config(CacheKind::ring)};
    for (const std::int64_t size : kPageSizes) {
        configs.push_back(batch.config(CacheKind::paged));
        configs.back().page_size = size;
    }
    return configs;
}

// As many keys as the longest sequence has, so that both calls end the axis at the same place.
TEST_P(AttendCacheTest, KindsAndPageSizes) {
    const NanMemory memory;
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (const std::int64_t T : {1, 3, 50}) {
            const Batch batch = uneven(T, dtype);
            for (const Mask& mask : {Mask{}, causal(), causal() & window(150, -1)}) {
                AttendInputs plain = batch.plain();
                plain.mask = plain.mask & mask;
                const std::string expected = bytes_of(Result(table(), plain));
                for (const KvCacheConfig& config : every_config(batch)) {
                    const KvCache cache = batch.cache(config);
                    AttendInputs in = batch.cached(cache);
                    in.mask = mask;
                    for (const Path path : {Path::direct, Path::packed}) {
                        ASSERT_EQ(expected,
                                  bytes_of(Result(table(), in, {.path = path, .execution = {.threads = 2}})))
                            << name_of_kind(config.kind) << ", pages of " << config.page_size << ", T " << T;
                    }
                }
            }
        }
    }
}

// What a cache rounds when it stores, it keeps: attention sees the numbers that keys() and values() give.
TEST_P(AttendCacheTest, StoredNumbersOfEveryType) {
    const NanMemory memory;
    const Batch batch = uneven(5);
    for (const CacheType type : kTypes) {
        for (KvCacheConfig config : every_config(batch)) {
            config.type = type, config.scale_group = 7;
            const KvCache cache = batch.cache(config);
            AttendInputs plain = batch.plain();
            Operand k(3, 420, 2, 24, DType::f32, Layout::bthd), v(3, 420, 2, 20, DType::f32, Layout::bthd);
            for (std::int64_t b = 0; b < 3; ++b) {
                const std::int64_t length = cache.length(b);
                const Tensor keys = cache.keys(b, 0, length), values = cache.values(b, 0, length);
                std::copy_n(keys.data<float>(), keys.count(), static_cast<float*>(k.view.data) + b * 420 * 48);
                std::copy_n(values.data<float>(), values.count(), static_cast<float*>(v.view.data) + b * 420 * 40);
            }
            plain.k = k.view, plain.v = v.view;
            const std::string expected = bytes_of(Result(table(), plain));
            for (const Path path : {Path::direct, Path::packed}) {
                ASSERT_EQ(expected, bytes_of(Result(table(), batch.cached(cache), {.path = path})))
                    << static_cast<int>(type) << ' ' << name_of_kind(config.kind);
            }
        }
    }
}

// Kind of bug: uneven lengths in a batch. Each sequence as if it were alone.
TEST_P(AttendCacheTest, SequenceAloneAndInABatch) {
    const Batch batch = uneven(2);
    for (const KvCacheConfig& config : every_config(batch)) {
        const KvCache cache = batch.cache(config);
        const Result together(table(), batch.cached(cache), {.execution = {.threads = 3}});
        for (std::int64_t b = 0; b < 3; ++b) {
            KvCacheConfig one = config;
            one.batch = 1;
            KvCache alone(one);
            const std::int64_t length = cache.length(b);
            alone.append(batch.x.k.view.slice(0, b, 1).slice(1, 0, length),
                         batch.x.v.view.slice(0, b, 1).slice(1, 0, length));
            AttendInputs in;
            in.q = batch.x.q.view.slice(0, b, 1), in.cache = &alone;
            const Result single(table(), in);
            for (std::int64_t t = 0; t < 2; ++t) {
                for (std::int64_t h = 0; h < 6; ++h) {
                    EXPECT_EQ(std::memcmp(head_row(together.out.view, b, t, h), head_row(single.out.view, 0, t, h),
                                          20 * sizeof(float)),
                              0);
                }
            }
        }
    }
}

// Kind of bug: lengths 0, 3, 1; a sequence without keys gives zeros.
TEST_P(AttendCacheTest, SequenceWithoutKeys) {
    const NanMemory memory;
    const Batch batch({.B = 3, .T = 1, .S = 8, .H = 2, .G = 1, .D = 8, .Dv = 8}, {0, 3, 1});
    for (const KvCacheConfig& config : every_config(batch)) {
        const KvCache cache = batch.cache(config);
        const Result result(table(), batch.cached(cache));
        for (std::int64_t i = 0; i < 16; ++i) EXPECT_EQ(load_f64(result.out.view.data, DType::f32, i), 0.0);
        EXPECT_EQ(result.lse.data<float>()[0], -kInf);
        EXPECT_EQ(bytes_of(result), bytes_of(Result(table(), batch.plain())));
    }
}

// Kind of bug: the second chunk of a prefill whose queries are placed as if it were the first.
TEST_P(AttendCacheTest, ChunksOfAPrefill) {
    const Operands x({.T = 300, .S = 300, .H = 4, .G = 2, .D = 16, .Dv = 16});
    AttendInputs whole = x.inputs();
    whole.mask = causal() & window(99, -1);
    const Result expected(table(), whole);
    for (const CacheKind kind : kKinds) {
        for (const std::int64_t chunk : {1, 7, 64, 128, 299, 300}) {
            KvCache cache({.batch = 1,
                           .kv_heads = 2,
                           .key_dim = 16,
                           .value_dim = 16,
                           .capacity = kind == CacheKind::ring ? 99 + chunk : 300,
                           .kind = kind,
                           .page_size = 5});
            for (std::int64_t at = 0; at < 300; at += chunk) {
                const std::int64_t T = std::min(chunk, 300 - at);
                cache.append(x.k.view.slice(1, at, T), x.v.view.slice(1, at, T));
                AttendInputs in;
                in.q = x.q.view.slice(1, at, T), in.cache = &cache, in.mask = whole.mask;
                const Result part(table(), in, {.execution = {.threads = 2}});
                ASSERT_EQ(std::memcmp(part.out.view.data, head_row(expected.out.view, 0, at, 0),
                                      static_cast<std::size_t>(T * 64) * sizeof(float)),
                          0)
                    << name_of_kind(kind) << ", chunks of " << chunk << ", at " << at;
            }
        }
    }
}

// The first keys stay visible and held, however far the window has moved on.
TEST_P(AttendCacheTest, RingWithItsFirstKeys) {
    const NanMemory memory;
    const Operands x({.T = 500, .S = 500, .H = 2, .G = 1, .D = 8, .Dv = 8});
    Tensor keep(DType::boolean, {500, 500});  // the same by a tensor: window or t < 4, and causal
    for (std::int64_t p = 0; p < 500; ++p) {
        for (std::int64_t t = 0; t <= p; ++t) keep.data<std::uint8_t>()[p * 500 + t] = t >= p - 140 || t < 4;
    }
    AttendInputs whole = x.inputs();
    whole.mask = headwise::keep(keep);
    const Result expected(table(), whole);
    KvCache cache({.batch = 1,
                   .kv_heads = 1,
                   .key_dim = 8,
                   .value_dim = 8,
                   .capacity = 145 + 30,
                   .keep_first = 4,
                   .kind = CacheKind::ring});
    for (std::int64_t at = 0; at < 500; at += 25) {
        cache.append(x.k.view.slice(1, at, 25), x.v.view.slice(1, at, 25));
        AttendInputs in;
        in.q = x.q.view.slice(1, at, 25), in.cache = &cache;
        in.mask = causal() & window(140, -1, 4);
        const Result part(table(), in);
        ASSERT_EQ(std::memcmp(part.out.view.data, head_row(expected.out.view, 0, at, 0), 25 * 16 * sizeof(float)),
                  0)
            << "at " << at;
    }
}

TEST_P(AttendCacheTest, PagesOfTheCaller) {
    const NanMemory memory;
    for (const DType dtype : {DType::f32, DType::bf16}) {
        for (const std::int64_t T : {1, 50}) {
            const Batch batch = uneven(T, dtype);
            for (const std::int64_t size : kPageSizes) {
                const std::int64_t P = (420 + size - 1) / size, pages = 3 * P + 2;
                Operand k(pages, size, 2, 24, dtype, Layout::gaps), v(pages, size, 2, 20, dtype, Layout::bhtd);
                Tensor entries(DType::i32, {3, P});
                std::vector<std::int32_t> order(static_cast<std::size_t>(pages));
                for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
                std::shuffle(order.begin(), order.end(), std::mt19937(3));
                for (std::int64_t b = 0; b < 3; ++b) {
                    for (std::int64_t n = 0; n < P; ++n) {
                        const bool used = n * size < batch.lengths[static_cast<std::size_t>(b)];
                        // Entries beyond the length are never read.
                        const std::int32_t page = order[static_cast<std::size_t>(b * P + n)];
                        entries.data<std::int32_t>()[b * P + n] = used ? page : -1;
                        for (std::int64_t t = n * size;
                             t < std::min((n + 1) * size, batch.lengths[static_cast<std::size_t>(b)]); ++t)
                            for (std::int64_t g = 0; g < 2; ++g) {
                                for (std::int64_t d = 0; d < 24; ++d)
                                    k.set(
                                        page, t % size, g, d,
                                        load_f64(batch.x.k.view.data, dtype, index4(batch.x.k.view, b, t, g, d)));
                                for (std::int64_t d = 0; d < 20; ++d)
                                    v.set(
                                        page, t % size, g, d,
                                        load_f64(batch.x.v.view.data, dtype, index4(batch.x.v.view, b, t, g, d)));
                            }
                    }
                }
                AttendInputs plain = batch.plain();
                plain.mask = plain.mask & causal();
                AttendInputs in = plain;
                in.k = k.view, in.v = v.view, in.pages = {entries};
                for (const Path path : {Path::direct, Path::packed}) {
                    ASSERT_EQ(bytes_of(Result(table(), plain)), bytes_of(Result(table(), in, {.path = path})))
                        << "pages of " << size << ", T " << T;
                }
            }
        }
    }
}

// The absorbed form of MLA: one latent head, whose value is the beginning of the key.
TEST_P(AttendCacheTest, ValueInKey) {
    const NanMemory memory;
    for (const std::int64_t T : {1, 4}) {
        Operands x({.B = 2, .T = T, .S = 140, .H = 16, .G = 1, .D = 80, .Dv = 64});
        AttendInputs plain = x.inputs();
        plain.v = plain.k.slice(3, 0, 64);
        const std::string expected = bytes_of(Result(table(), plain));
        for (const CacheKind kind : kKinds) {
            KvCache cache({.batch = 2,
                           .kv_heads = 1,
                           .key_dim = 80,
                           .value_dim = 64,
                           .value_in_key = true,
                           .capacity = 150,
                           .kind = kind,
                           .page_size = 48});
            cache.append(x.k.view, {});
            AttendInputs in;
            in.q = x.q.view, in.cache = &cache;
            EXPECT_EQ(expected, bytes_of(Result(table(), in))) << name_of_kind(kind);
        }
    }
}

// Kind of bug: the newest key, or a key in the middle, is hidden and holds NaN.
TEST_P(AttendCacheTest, HiddenKeysOfACacheHoldNaN) {
    const Shape shape{.B = 1, .T = 1, .S = 200, .H = 4, .G = 2, .D = 16, .Dv = 16};
    const Batch batch(shape, {200});
    Tensor some(DType::boolean, {1, 1, 1, 200});
    std::fill_n(some.data<std::uint8_t>(), 200, std::uint8_t{1});
    Batch poisoned(shape, {200});
    for (const std::int64_t hidden : {0, 77, 128, 199}) {
        some.data<std::uint8_t>()[hidden] = 0;
        for (std::int64_t d = 0; d < 16; ++d)
            poisoned.x.k.set(0, hidden, 1, d, kNaN), poisoned.x.v.set(0, hidden, 1, d, kInf);
    }
    for (const KvCacheConfig& config : every_config(batch)) {
        AttendInputs clean = batch.plain();
        clean.mask = clean.mask & keep(some);
        const KvCache cache = poisoned.cache(config);
        AttendInputs in = poisoned.cached(cache);
        in.mask = keep(some);
        EXPECT_EQ(bytes_of(Result(table(), clean)), bytes_of(Result(table(), in)));
    }
}

// Speculative decoding: a tree of drafted tokens, each of which sees its own ancestors among the newest keys.
TEST_P(AttendCacheTest, TreeOfDraftedTokens) {
    const std::int64_t parents[] = {-1, 0, 0, 1, 1, 2}, T = 6, before = 130, S = before + T;
    const Batch batch({.B = 1, .T = T, .S = S, .H = 2, .G = 1, .D = 8, .Dv = 8}, {S});
    Tensor tree(DType::boolean, {T, S});
    for (std::int64_t i = 0; i < T; ++i) {
        std::fill_n(tree.data<std::uint8_t>() + i * S, before, std::uint8_t{1});
        for (std::int64_t node = i; node >= 0; node = parents[node])
            tree.data<std::uint8_t>()[i * S + before + node] = 1;
    }
    const KvCache cache = batch.cache(batch.config(CacheKind::paged));
    AttendInputs in = batch.cached(cache);
    in.mask = keep(tree);
    const Result together(table(), in);
    // Each branch alone sees the same keys, but at other indices: equal within the bound, not bit by bit.
    for (std::int64_t i = 0; i < T; ++i) {
        std::vector<std::int64_t> path;
        for (std::int64_t node = i; node >= 0; node = parents[node]) path.insert(path.begin(), before + node);
        Operands alone(
            {.T = 1, .S = before + static_cast<std::int64_t>(path.size()), .H = 2, .G = 1, .D = 8, .Dv = 8});
        const auto take = [&](const Operand& from, Operand& to) {
            to.fill([&](std::int64_t, std::int64_t t, std::int64_t g, std::int64_t d) {
                const std::int64_t key = t < before ? t : path[static_cast<std::size_t>(t - before)];
                return load_f64(from.view.data, DType::f32, index4(from.view, 0, key, g, d));
            });
        };
        take(batch.x.k, alone.k), take(batch.x.v, alone.v);
        AttendInputs one = alone.inputs();
        one.q = batch.x.q.view.slice(1, i, 1);
        const Expected<double> expected = reference<double>(one);
        const ConstTensorView row = together.out.view.slice(1, i, 1);
        EXPECT_EQ(judge(row, expected.out, expected.out_bound).bad, 0) << "token " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttendCacheTest, every_isa(), isa_name);

}  // namespace
}  // namespace headwise::test
