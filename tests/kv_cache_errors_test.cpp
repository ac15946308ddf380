// What caches, and attention over caches and pages, refuse: in words, and before anything has changed.
#include <algorithm>
#include <limits>

#include "attend_cases.h"
#include "cache_cases.h"

namespace headwise::test {
namespace {

void expect_message(const std::string& message, const std::string& words) {
    EXPECT_NE(message.find(words), std::string::npos) << message << "\n  lacks: " << words;
}

void expect_no_cache(const std::string& words, const std::function<void(KvCacheConfig&)>& breaks) {
    KvCacheConfig config{.batch = 2, .kv_heads = 2, .key_dim = 8, .value_dim = 8, .capacity = 16};
    breaks(config);
    expect_message(message_of(ErrorCode::invalid_argument, [&] { KvCache cache(config); }), words);
}

TEST(KvCacheErrors, Configs) {
    expect_no_cache("batch -1", [](KvCacheConfig& c) { c.batch = -1; });
    expect_no_cache("kv_heads -2", [](KvCacheConfig& c) { c.kv_heads = -2; });
    expect_no_cache("capacity -1", [](KvCacheConfig& c) { c.capacity = -1; });
    expect_no_cache("key_dim 0", [](KvCacheConfig& c) { c.key_dim = 0; });
    expect_no_cache("value_dim -1", [](KvCacheConfig& c) { c.value_dim = -1; });
    expect_no_cache("first columns of a key of 8",
                    [](KvCacheConfig& c) { c.value_in_key = true, c.value_dim = 9; });
    expect_no_cache("is for rings", [](KvCacheConfig& c) { c.keep_first = 1; });
    expect_no_cache("less than the capacity",
                    [](KvCacheConfig& c) { c.kind = CacheKind::ring, c.keep_first = 16; });
    expect_no_cache("page_size 0", [](KvCacheConfig& c) { c.kind = CacheKind::paged, c.page_size = 0; });
    expect_no_cache("pages -1", [](KvCacheConfig& c) { c.kind = CacheKind::paged, c.pages = -1; });
    expect_no_cache("2^31 - 1 are the most",
                    [](KvCacheConfig& c) { c.kind = CacheKind::paged, c.pages = std::int64_t{1} << 31; });
    expect_no_cache("scale_group -1", [](KvCacheConfig& c) { c.scale_group = -1; });
    expect_no_cache("kind 9", [](KvCacheConfig& c) { c.kind = static_cast<CacheKind>(9); });
    expect_no_cache("type 9", [](KvCacheConfig& c) { c.type = static_cast<CacheType>(9); });
    // Sizes whose product leaves 63 bits.
    expect_no_cache("not a size that memory can have",
                    [](KvCacheConfig& c) { c.capacity = std::int64_t{1} << 60; });
    expect_no_cache("not a size that memory can have",
                    [](KvCacheConfig& c) { c.kv_heads = std::int64_t{1} << 61; });
    expect_no_cache("channels", [](KvCacheConfig& c) { c.key_dim = std::int64_t{1} << 62; });
}

TEST(KvCacheErrors, MoreSequencesThanAListCanHave) {
    for (const CacheKind kind : kKinds) {
        const KvCacheConfig config{.batch = std::numeric_limits<std::int64_t>::max(),
                                   .kv_heads = 2,
                                   .key_dim = 8,
                                   .value_dim = 8,
                                   .capacity = 1,
                                   .kind = kind};
        message_of(ErrorCode::out_of_memory, [&] { KvCache cache(config); });
    }
}

TEST(KvCacheErrors, NoMemory) {
    for (const CacheKind kind : kKinds) {
        const KvCacheConfig config{
            .batch = 2, .kv_heads = 2, .key_dim = 8, .value_dim = 8, .capacity = 16, .kind = kind};
        NanMemory memory(0);
        message_of(ErrorCode::out_of_memory, [&] { KvCache cache(config); });
        memory.allow(1);
        KvCache cache(config);
        memory.allow(0);
        const std::string before = bytes_of(cache);
        std::vector<float> numbers(2 * 2 * 2 * 8, 1.0f);
        const ConstTensorView tokens(numbers.data(), DType::f32, {2, 2, 2, 8});
        // An append needs scratch, which it asks for before it changes anything.
        EXPECT_EQ(message_of(ErrorCode::out_of_memory, [&] { cache.append(tokens, tokens); }).substr(0, 8),
                  "allocate");
        EXPECT_EQ(before, bytes_of(cache));
        memory.allow(100);
        cache.append(tokens, tokens);
        EXPECT_EQ(cache.length(1), 2);
        const std::string held = bytes_of(cache);
        memory.allow(0);
        if (kind != CacheKind::paged) message_of(ErrorCode::out_of_memory, [&] { KvCache fork = cache.fork(); });
        EXPECT_EQ(held, bytes_of(cache));
        memory.allow(100);
    }
}

// An append that is right; every test breaks one thing.
struct AppendCall {
    Tensor k{DType::f32, {2, 3, 2, 8}}, v{DType::f32, {2, 3, 2, 6}};
    ConstTensorView keys = k.view(), values = v.view(), counts{};
    Execution execution{};
};

void expect_no_append(const std::string& words, const std::function<void(AppendCall&)>& breaks) {
    const NanMemory memory;
    KvCache cache({.batch = 2, .kv_heads = 2, .key_dim = 8, .value_dim = 6, .capacity = 16});
    AppendCall call;
    cache.append(call.keys, call.values);
    breaks(call);
    const std::string before = bytes_of(cache);
    expect_message(message_of(ErrorCode::invalid_argument,
                              [&] { cache.append(call.keys, call.values, call.counts, call.execution); }),
                   words);
    EXPECT_EQ(before, bytes_of(cache));
}

TEST(KvCacheErrors, Appends) {
    const std::int64_t counts[] = {4, -1};
    expect_no_append("k is no tensor", [](AppendCall& c) { c.keys = {}; });
    expect_no_append("v is no tensor", [](AppendCall& c) { c.values = {}; });
    expect_no_append("[B,T,G,D] = [2, T, 2, 8]", [](AppendCall& c) { c.keys = c.keys.slice(3, 0, 7); });
    expect_no_append("[B,T,G,Dv] = [2, T, 2, 6]", [](AppendCall& c) { c.values = c.keys; });
    expect_no_append("[B,T,G,D]", [](AppendCall& c) { c.keys = c.keys.slice(0, 0, 1); });
    expect_no_append("[B,T,G,D]", [](AppendCall& c) { c.keys = c.keys.slice(2, 0, 1); });
    expect_no_append("same number of tokens", [](AppendCall& c) { c.values = c.values.slice(1, 0, 2); });
    expect_no_append("f32, bf16 or f16", [](AppendCall& c) { c.keys.dtype = DType::f64; });
    expect_no_append("innermost stride must be 1", [](AppendCall& c) { c.keys.strides[3] = 2; });
    expect_no_append("null address", [](AppendCall& c) { c.keys.data = nullptr; });
    expect_no_append("counts is f32",
                     [](AppendCall& c) { c.counts = ConstTensorView(c.k.view().data, DType::f32, {2}); });
    expect_no_append("counts is", [&](AppendCall& c) { c.counts = ConstTensorView(counts, DType::i64, {1}); });
    expect_no_append("counts[0] is 4",
                     [&](AppendCall& c) { c.counts = ConstTensorView(counts, DType::i64, {2}); });
    expect_no_append("counts[0] is -1",
                     [&](AppendCall& c) { c.counts = ConstTensorView(counts + 1, DType::i64, {2}, {0}); });
    expect_no_append("threads = -1", [](AppendCall& c) { c.execution.threads = -1; });
    KvCache latent(
        {.batch = 2, .kv_heads = 2, .key_dim = 8, .value_dim = 6, .value_in_key = true, .capacity = 16});
    const AppendCall call;
    expect_message(message_of(ErrorCode::invalid_argument, [&] { latent.append(call.keys, call.values); }),
                   "leave it out");
}

TEST(KvCacheErrors, SequencesAndRanges) {
    KvCache cache({.batch = 2, .kv_heads = 2, .key_dim = 8, .value_dim = 6, .capacity = 16});
    const AppendCall call;
    cache.append(call.keys, call.values);
    const auto refused = [](const std::function<void()>& change) {
        return message_of(ErrorCode::invalid_argument, change);
    };
    expect_message(refused([&] { (void)cache.length(2); }), "KvCache::length: sequence 2 of 2");
    expect_message(refused([&] { (void)cache.first_key(-1); }), "KvCache::first_key: sequence -1 of 2");
    expect_message(refused([&] { cache.truncate(2, 0); }), "KvCache::truncate: sequence 2 of 2");
    expect_message(refused([&] { cache.truncate(0, 4); }), "it can only become shorter");
    expect_message(refused([&] { cache.truncate(0, -1); }), "length -1");
    expect_message(refused([&] { cache.reorder({0}); }), "1 entries for 2 sequences");
    expect_message(refused([&] { cache.reorder({0, 2}); }), "sequence 2 of 2");
    expect_message(refused([&] { (void)cache.keys(0, 1, 3); }), "3 keys from 1 on of sequence 0, which holds 3");
    expect_message(refused([&] { (void)cache.values(0, -1, 1); }), "1 keys from -1 on");
}

// ---- attention over them -------------------------------------------------------------------------------------

struct AttendCall {
    KvCache cache{{.batch = 2, .kv_heads = 2, .key_dim = 8, .value_dim = 6, .capacity = 16}};
    Operands x{{.B = 2, .T = 1, .S = 5, .H = 4, .G = 2, .D = 8, .Dv = 6}};
    Tensor out{DType::f32, {2, 1, 4, 6}};
    std::int64_t numbers[2] = {5, 6};
    AttendInputs in;

    AttendCall() {
        cache.append(x.k.view, x.v.view);
        in.q = x.q.view, in.cache = &cache;
    }
    ConstTensorView integers() const { return ConstTensorView(numbers, DType::i64, {2}); }
};

void expect_refused(const std::string& words, const std::function<void(AttendCall&)>& breaks) {
    AttendCall call;
    call.out.data<float>()[0] = 7;
    attend(call.in, {.out = call.out.view()});
    EXPECT_NE(call.out.data<float>()[0], 7);
    call.out.data<float>()[0] = 7;
    breaks(call);
    expect_message(message_of(ErrorCode::invalid_argument, [&] { attend(call.in, {.out = call.out.view()}); }),
                   words);
    EXPECT_EQ(call.out.data<float>()[0], 7);
}

TEST(KvCacheErrors, AttentionOverACache) {
    const std::int32_t cumulative[] = {0, 1};
    expect_refused("k, v or pages beside a cache", [](AttendCall& c) { c.in.k = c.x.k.view; });
    expect_refused("k, v or pages beside a cache", [](AttendCall& c) { c.in.v = c.x.v.view; });
    expect_refused("must be f32, bf16 or f16", [](AttendCall& c) { c.in.q.dtype = DType::f64; });
    expect_refused("keys of 8 channels", [](AttendCall& c) { c.in.q = c.in.q.slice(3, 0, 7); });
    expect_refused("the cache has 2 sequences", [](AttendCall& c) { c.in.q = c.in.q.slice(0, 0, 1); });
    expect_refused("H must be a multiple of G", [](AttendCall& c) { c.in.q = c.in.q.slice(2, 0, 3); });
    expect_refused("key_lengths[1] is 6", [](AttendCall& c) { c.in.mask = key_lengths(c.integers()); });
    expect_refused("documents beside a cache", [&](AttendCall& c) {
        c.in.mask.documents.queries = ConstTensorView(cumulative, DType::i32, {2});
    });
}

// The window of a query reaches keys that are gone: an error, not another result.
TEST(KvCacheErrors, RingShorterThanTheWindow) {
    KvCache ring({.batch = 1,
                  .kv_heads = 1,
                  .key_dim = 4,
                  .value_dim = 4,
                  .capacity = 10,
                  .keep_first = 2,
                  .kind = CacheKind::ring});
    const Operands x({.T = 3, .S = 30, .H = 1, .G = 1, .D = 4, .Dv = 4});
    Tensor out(DType::f32, {1, 3, 1, 4});
    AttendInputs in;
    in.q = x.q.view, in.cache = &ring;
    const auto call = [&](const Mask& mask) {
        in.mask = mask;
        return message_of(ErrorCode::invalid_argument, [&] { attend(in, {.out = out.view()}); });
    };
    ring.append(x.k.view.slice(1, 0, 10), x.v.view.slice(1, 0, 10));
    EXPECT_EQ(call(causal()), "accepted");  // nothing is overwritten yet
    ring.append(x.k.view.slice(1, 10, 20), x.v.view.slice(1, 10, 20));
    // Keys 22 .. 29 are held; the queries stand at 27, 28 and 29.
    EXPECT_EQ(call(window(5, 0)), "accepted");
    expect_message(call(window(6, 0)), "sees keys from 21 on, but the ring has overwritten those below 22");
    expect_message(call(causal()), "sees keys from 0 on");
    EXPECT_EQ(call(window(5, 0, 2)), "accepted");
    expect_message(call(window(5, 0, 3)), "keeps the first 3 keys, but the ring only the first 2");
    const std::int64_t starts[] = {22}, none[] = {0};
    Mask from_22;
    from_22.key_starts = ConstTensorView(starts, DType::i64, {1});
    EXPECT_EQ(call(from_22), "accepted");
    EXPECT_EQ(call(key_lengths(ConstTensorView(none, DType::i64, {1}))), "accepted");
}

struct PagedCall {
    Operand k{6, 4, 2, 8, DType::f32, Layout::bthd, 1.0}, v{6, 4, 2, 6, DType::f32, Layout::bthd, 1.0};
    Operands x{{.B = 2, .T = 1, .S = 1, .H = 4, .G = 2, .D = 8, .Dv = 6}};
    std::int32_t entries[6] = {5, 0, 9, 2, -1, -1};
    std::int64_t lengths[2] = {8, 4};
    Tensor out{DType::f32, {2, 1, 4, 6}};
    AttendInputs in;

    PagedCall() {
        in.q = x.q.view, in.k = k.view, in.v = v.view;
        in.pages.table = ConstTensorView(entries, DType::i32, {2, 3});
        in.mask = key_lengths(ConstTensorView(lengths, DType::i64, {2}));
    }
};

void expect_refused_pages(const std::string& words, const std::function<void(PagedCall&)>& breaks) {
    PagedCall call;
    attend(call.in, {.out = call.out.view()});
    breaks(call);
    expect_message(message_of(ErrorCode::invalid_argument, [&] { attend(call.in, {.out = call.out.view()}); }),
                   words);
}

TEST(KvCacheErrors, PageTables) {
    expect_refused_pages("entry [0, 2] of the page table is 9, but k and v have 6 pages",
                         [](PagedCall& c) { c.lengths[0] = 9; });
    expect_refused_pages("entry [1, 1] of the page table is -1", [](PagedCall& c) { c.lengths[1] = 5; });
    expect_refused_pages("key_lengths[0] is 13", [](PagedCall& c) { c.lengths[0] = 13; });
    expect_refused_pages("pages without key_lengths", [](PagedCall& c) { c.in.mask = {}; });
    expect_refused_pages("must be i32 [B,P]", [](PagedCall& c) { c.in.pages.table.dtype = DType::i64; });
    expect_refused_pages("must be i32 [B,P]",
                         [](PagedCall& c) { c.in.pages.table = c.in.pages.table.slice(0, 0, 1); });
    expect_refused_pages("at a null address", [](PagedCall& c) { c.in.pages.table.data = nullptr; });
    expect_refused_pages("but D (axis 3) must be 8", [](PagedCall& c) { c.in.k = c.in.k.slice(3, 0, 7); });
    expect_refused_pages("but page_size (axis 1) must be 4", [](PagedCall& c) { c.in.v = c.in.v.slice(1, 0, 3); });
    expect_refused_pages("number of pages (axis 0) must be 6",
                         [](PagedCall& c) { c.in.v = c.in.v.slice(0, 0, 5); });
    expect_refused_pages("a page must hold at least one key",
                         [](PagedCall& c) { c.in.k = c.in.k.slice(1, 0, 0); });
    expect_refused_pages("must be f32, bf16 or f16",
                         [](PagedCall& c) { c.in.q.dtype = c.in.k.dtype = c.in.v.dtype = DType::f64; });
}

}  // namespace
}  // namespace headwise::test
