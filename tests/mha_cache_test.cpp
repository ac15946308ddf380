// A layer with a cache: any way to cut a prompt into calls leaves the bits of one call without a cache, for every kind;
// sequences of different lengths; nothing changes where a call is refused.
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/error.h>
#include <headwise/mha.h>

#include "isas.h"
#include "layer_reference.h"
#include "mha_layer.h"
#include "refused.h"

namespace headwise {
namespace {

using test::Layer;

class MhaCache : public testing::TestWithParam<const KernelTable*> {
protected:
    void SetUp() override { set_isa(GetParam()->isa); }
    void TearDown() override { set_isa(""); }
};
INSTANTIATE_TEST_SUITE_P(Isa, MhaCache, testing::ValuesIn(test_tables()),
                         [](const auto& table) { return std::string(table.param->isa); });

constexpr std::int64_t kBatch = 2, kTokens = 37, kEmbed = 32;

// y of x [B,T,E] in calls of the given lengths with one cache.
Tensor in_calls(const MultiHeadAttention& block, KvCache& cache, const Tensor& x,
                const std::vector<std::int64_t>& calls, const ForwardOptions& base = {}) {
    Tensor y(DType::f32, {x.size(0), x.size(1), block.config().out_dim});
    std::int64_t done = 0;
    for (const std::int64_t n : calls) {
        ForwardOptions options = base;
        options.cache = &cache;
        block.forward(x.view().slice(1, done, n), y.view().slice(1, done, n), options);
        done += n;
    }
    EXPECT_EQ(done, x.size(1));
    return y;
}

std::int64_t first_difference(const Tensor& a, const Tensor& b) {
    for (std::int64_t i = 0; i < a.count(); ++i)
        if (std::memcmp(a.data<float>() + i, b.data<float>() + i, 4) != 0) return i;
    return -1;
}

std::vector<std::vector<std::int64_t>> chunkings() {
    std::vector<std::vector<std::int64_t>> list = {{37},          {36, 1},     {1, 36},
                                                   {5, 30, 1, 1}, {20, 0, 17}, {8, 8, 8, 13}};
    list.push_back(std::vector<std::int64_t>(37, 1));
    return list;
}

struct Named {
    const char* name;
    MhaConfig config;
};

std::vector<Named> layers() {
    std::vector<Named> list;
    MhaConfig plain{.embed_dim = kEmbed, .heads = 4, .kv_heads = 2, .mask = causal()};
    plain.rope = Rope{.theta = 100};
    list.push_back({"plain", plain});
    MhaConfig windowed = plain;
    windowed.mask = causal() & window(6, 0);
    windowed.qk_norm = HeadNorm{}, windowed.gate = Gate::element;
    list.push_back({"windowed", windowed});
    MhaConfig single{.embed_dim = kEmbed, .heads = 4, .kv_heads = 1, .value_dim = 5, .mask = causal()};
    single.difference = HeadDifference{0.5}, single.merged_norm = MergedNorm{};
    list.push_back({"single kv head", single});
    MhaConfig latent{.embed_dim = kEmbed, .heads = 4, .head_dim = 12, .value_dim = 7, .mask = causal()};
    latent.latent = Latent{.q_rank = 9, .kv_rank = 16, .rope_dim = 4, .form = Latent::Form::absorbed};
    latent.rope = Rope{.theta = 100};
    list.push_back({"absorbed", latent});
    latent.latent->form = Latent::Form::naive;
    list.push_back({"naive", latent});
    MhaConfig routed{.embed_dim = kEmbed, .kv_heads = 2, .head_dim = 8, .mask = causal()};
    routed.routing = Routing{.experts = 4, .top_k = 2};
    list.push_back({"routed", routed});
    return list;
}

TEST_P(MhaCache, AnyChunkingLeavesTheBitsOfOneCall) {
    for (const Named& named : layers()) {
        Layer layer(named.config);
        const MultiHeadAttention block(layer.config, layer.weights);
        const Tensor x = layer.rows(kBatch, kTokens, kEmbed);
        const Tensor whole = block.forward(x);
        for (const KvCacheConfig& wish :
             {KvCacheConfig{.batch = kBatch, .capacity = 37},
              KvCacheConfig{.batch = kBatch, .capacity = 64, .kind = CacheKind::paged, .page_size = 5},
              KvCacheConfig{.batch = kBatch, .capacity = 64, .kind = CacheKind::paged, .page_size = 16}}) {
            for (const auto& calls : chunkings()) {
                KvCache cache = make_cache(layer.config, wish);
                EXPECT_EQ(first_difference(in_calls(block, cache, x, calls), whole), -1)
                    << named.name << ", page size " << wish.page_size << ", first call " << calls[0];
                EXPECT_EQ(cache.length(1), kTokens);
            }
        }
    }
}

// A ring that holds the window alone, or a little more: long calls come piece by piece.
TEST_P(MhaCache, RingLeavesTheBitsOfOneCall) {
    MhaConfig config = layers()[1].config;
    for (const std::int64_t kept : {0, 3}) {
        config.mask.keep_first = kept;
        for (const bool chunk : {false, true}) {
            if (chunk) config.mask = causal() & chunked(7);
            Layer layer(config);
            const MultiHeadAttention block(layer.config, layer.weights);
            const Tensor x = layer.rows(kBatch, kTokens, kEmbed);
            const Tensor whole = block.forward(x);
            for (const std::int64_t capacity : {7, 8, 12, 40}) {
                for (const auto& calls : chunkings()) {
                    KvCache cache = make_cache(layer.config, {.batch = kBatch,
                                                              .capacity = capacity + kept,
                                                              .keep_first = kept,
                                                              .kind = CacheKind::ring});
                    EXPECT_EQ(first_difference(in_calls(block, cache, x, calls), whole), -1)
                        << "capacity " << capacity << ", kept " << kept << ", first call " << calls[0];
                }
            }
        }
    }
}

// Keys are attended as they are stored, so it does not matter in which calls they came.
TEST_P(MhaCache, StoredTypesLeaveTheSameBitsForAnyChunking) {
    for (const Named& named : layers()) {
        Layer layer(named.config);
        const MultiHeadAttention block(layer.config, layer.weights);
        const Tensor x = layer.rows(kBatch, kTokens, kEmbed), exact = block.forward(x);
        for (const CacheType type : {CacheType::bf16, CacheType::f16, CacheType::int8, CacheType::int4}) {
            const KvCacheConfig wish{.batch = kBatch, .capacity = 37, .type = type};
            KvCache once = make_cache(layer.config, wish);
            const Tensor whole = in_calls(block, once, x, {37});
            EXPECT_NE(first_difference(whole, exact), -1) << named.name;
            for (const auto& calls : chunkings()) {
                KvCache cache = make_cache(layer.config, wish);
                EXPECT_EQ(first_difference(in_calls(block, cache, x, calls), whole), -1)
                    << named.name << " " << calls[0];
            }
        }
    }
}

// The form that is chosen by itself may differ from call to call; the result stays within the bound of a layer.
TEST_P(MhaCache, LatentFormsAgree) {
    MhaConfig config = layers()[3].config;
    config.latent->form = Latent::Form::automatic;
    Layer layer(config);
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(kBatch, kTokens, kEmbed);
    test::LayerReference reference(layer.config, layer.weights);
    const test::DenseRows expected = reference.run(x);
    double largest = 0;
    for (const double each : expected.values) largest = std::max(largest, std::abs(each));
    for (const auto& calls : chunkings()) {
        KvCache cache = make_cache(layer.config, {.batch = kBatch, .capacity = 37});
        EXPECT_EQ(cache.config().key_dim, 16 + 4);
        EXPECT_EQ(cache.config().kv_heads, 1);
        const Tensor y = in_calls(block, cache, x, calls);
        for (std::size_t i = 0; i < expected.values.size(); ++i)
            ASSERT_LE(std::abs(y.data<float>()[i] - expected.values[i]), 4e-6 * largest) << calls[0];
    }
}

// Sequences of lengths 0, 3 and 1 in one call, new tokens of different number: each has the bits that it has alone.
TEST_P(MhaCache, UnevenSequencesDoNotTouchEachOther) {
    for (const Named& named : layers()) {
        MhaConfig config = named.config;
        if (config.latent) config.latent->form = Latent::Form::automatic;
        Layer layer(config);
        const MultiHeadAttention block(layer.config, layer.weights);
        const Tensor x = layer.rows(3, kTokens, kEmbed);
        const std::vector<std::vector<std::int64_t>> counts = {{0, 3, 1}, {4, 0, 30}, {1, 1, 1}, {20, 7, 5}};
        KvCache together = make_cache(layer.config, {.batch = 3, .capacity = kTokens});
        std::vector<KvCache> apart;
        for (int b = 0; b < 3; ++b) apart.push_back(make_cache(layer.config, {.capacity = kTokens}));
        std::vector<std::int64_t> done(3, 0);
        for (const auto& count : counts) {
            const std::int64_t tokens = *std::max_element(count.begin(), count.end());
            Tensor rows(DType::f32, {3, tokens, kEmbed});
            for (std::int64_t i = 0; i < rows.count(); ++i) rows.data<float>()[i] = NAN;
            for (std::size_t b = 0; b < 3; ++b)
                std::memcpy(rows.data<float>() + static_cast<std::int64_t>(b) * tokens * kEmbed,
                            x.data<float>() + (static_cast<std::int64_t>(b) * kTokens + done[b]) * kEmbed,
                            static_cast<std::size_t>(count[b] * kEmbed) * 4);
            const Tensor y = block.forward(
                rows, {.cache = &together, .counts = ConstTensorView(count.data(), DType::i64, {3})});
            for (std::size_t b = 0; b < 3; ++b) {
                const auto at = static_cast<std::int64_t>(b);
                const Tensor own =
                    block.forward(x.view().slice(0, at, 1).slice(1, done[b], count[b]), {.cache = &apart[b]});
                EXPECT_EQ(std::memcmp(own.data<float>(), y.data<float>() + at * tokens * kEmbed,
                                      static_cast<std::size_t>(own.count()) * 4),
                          0)
                    << named.name << ", sequence " << b << " after " << done[b];
                done[b] += count[b];
                EXPECT_EQ(together.length(at), done[b]);
            }
        }
    }
}

// Without a cache, counts hide what lies beyond them.
TEST_P(MhaCache, CountsHidePadding) {
    Layer layer({.embed_dim = kEmbed, .heads = 4});
    const MultiHeadAttention block(layer.config, layer.weights);
    Tensor x = layer.rows(2, 9, kEmbed);
    const std::int32_t counts[] = {4, 9};
    const Tensor y = block.forward(x, {.counts = ConstTensorView(counts, DType::i32, {2})});
    const Tensor alone = block.forward(x.view().slice(0, 0, 1).slice(1, 0, 4));
    EXPECT_EQ(std::memcmp(alone.data<float>(), y.data<float>(), static_cast<std::size_t>(alone.count()) * 4), 0);
}

// An encoder's keys are projected once and read by every later call.
TEST_P(MhaCache, DecoderReadsWhatTheEncoderLeft) {
    Layer layer({.embed_dim = kEmbed, .heads = 4, .kv_heads = 2, .key_embed_dim = 20, .value_embed_dim = 20});
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 5, kEmbed), encoded = layer.rows(2, 11, 20);
    const std::int64_t lengths[] = {11, 6};
    const ConstTensorView counts(lengths, DType::i64, {2});
    const Tensor expected = block.forward(x, {.key = encoded, .mask = key_lengths(counts)});
    KvCache cache = make_cache(layer.config, {.batch = 2, .capacity = 11});
    const Tensor filled =
        block.forward(x.view().slice(1, 0, 2), {.key = encoded, .cache = &cache, .counts = counts});
    const Tensor read = block.forward(x, {.cache = &cache, .cache_use = CacheUse::read});
    EXPECT_EQ(cache.length(1), 6);
    EXPECT_EQ(first_difference(read, expected), -1);
    for (std::int64_t b = 0; b < 2; ++b)
        EXPECT_EQ(std::memcmp(filled.data<float>() + b * 2 * kEmbed, expected.data<float>() + b * 5 * kEmbed,
                              2 * kEmbed * 4),
                  0);
}

// The mask's key axis is the longest length after the append; tree masks hide some of the newest keys.
TEST_P(MhaCache, TensorMasksSpanTheCache) {
    Layer layer(layers()[0].config);
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(1, 8, kEmbed);
    KvCache cache = make_cache(layer.config, {.capacity = 8});
    block.forward(x.view().slice(1, 0, 5), {.cache = &cache});
    // Token 6 follows token 4, not token 5: as if token 5 had not been there but for its place.
    const std::uint8_t see[] = {1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1};
    const Mask tree = keep(ConstTensorView(see, DType::boolean, {3, 8}));
    const Tensor y = block.forward(x.view().slice(1, 5, 3), {.mask = tree, .cache = &cache});
    std::vector<std::uint8_t> all(64, 1);
    std::memcpy(&all[40], see, 24);
    const Tensor whole = block.forward(x, {.mask = keep(ConstTensorView(all.data(), DType::boolean, {8, 8}))});
    EXPECT_EQ(std::memcmp(y.data<float>(), whole.data<float>() + 5 * kEmbed, 3 * kEmbed * 4), 0);
}

TEST_P(MhaCache, BitsDoNotDependOnThreads) {
    for (const Named& named : layers()) {
        Layer layer(named.config);
        const MultiHeadAttention block(layer.config, layer.weights);
        const Tensor x = layer.rows(kBatch, kTokens, kEmbed);
        KvCache one = make_cache(layer.config, {.batch = kBatch, .capacity = 37});
        const Tensor y = in_calls(block, one, x, {30, 7}, {.execution = {.threads = 1}});
        for (const int threads : {2, 5}) {
            KvCache cache = make_cache(layer.config, {.batch = kBatch, .capacity = 37});
            EXPECT_EQ(first_difference(in_calls(block, cache, x, {30, 7}, {.execution = {.threads = threads}}), y),
                      -1)
                << named.name;
        }
    }
}

// Rows that a speculative step has appended and taken back leave no trace.
TEST_P(MhaCache, RollbackLeavesNoTrace) {
    for (const Named& named : layers()) {
        Layer layer(named.config);
        const MultiHeadAttention block(layer.config, layer.weights);
        const Tensor x = layer.rows(1, 12, kEmbed), wrong = layer.rows(1, 4, kEmbed);
        const Tensor whole = block.forward(x);
        KvCache cache = make_cache(layer.config, {.capacity = 12});
        block.forward(x.view().slice(1, 0, 7), {.cache = &cache});
        block.forward(wrong, {.cache = &cache});
        cache.truncate(0, 7);
        const Tensor y = block.forward(x.view().slice(1, 7, 5), {.cache = &cache});
        EXPECT_EQ(std::memcmp(y.data<float>(), whole.data<float>() + 7 * kEmbed, 5 * kEmbed * 4), 0) << named.name;
    }
}

// Whatever a call is refused for, the cache and y stay as they were.
TEST(MhaCacheErrors, NothingChanges) {
    Layer layer(layers()[0].config);
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(2, 6, kEmbed);
    KvCache cache = make_cache(layer.config, {.batch = 2, .capacity = 8});
    block.forward(x, {.cache = &cache});
    Tensor y(DType::f32, {2, 6, kEmbed});
    for (std::int64_t i = 0; i < y.count(); ++i) y.data<float>()[i] = -77.0f;
    const auto refused = [&](ForwardOptions options, ErrorCode code, const char* part) {
        options.cache = &cache;
        expect_refused([&] { block.forward(x, y, options); }, code, part);
        EXPECT_EQ(cache.length(0), 6);
        EXPECT_EQ(cache.length(1), 6);
        for (std::int64_t i = 0; i < y.count(); ++i) ASSERT_EQ(y.data<float>()[i], -77.0f);
    };
    constexpr ErrorCode kWrong = ErrorCode::invalid_argument;
    refused({}, ErrorCode::cache_full, "holds 6 of 8 keys and has no room for 6 more");
    const std::int64_t counts[] = {1, 3}, good[] = {1, 2}, negative[] = {0, -1};
    refused({.counts = ConstTensorView(counts, DType::i64, {2})}, ErrorCode::cache_full, "sequence 1");
    const ConstTensorView fits(good, DType::i64, {2});
    refused({.counts = ConstTensorView(negative, DType::i64, {2})}, kWrong, "counts[1] is -1");
    refused({.counts = ConstTensorView(good, DType::i64, {1})}, kWrong, "expected [2]");
    const std::uint8_t see[6 * 6] = {};
    refused({.mask = keep(ConstTensorView(see, DType::boolean, {6, 6})), .counts = fits}, kWrong, "broadcast");
    Tensor lse(DType::f32, {2, 4, 5});
    refused({.counts = fits, .lse = lse}, kWrong, "lse");
    refused({.key = x, .cache_use = CacheUse::read}, kWrong, "CacheUse::read");
    refused({.cache_use = CacheUse::read, .counts = fits}, kWrong, "CacheUse::read");
    refused({.rope_positions = fits, .counts = fits}, kWrong, "rope_positions");
    refused({.counts = fits, .execution = {.threads = -1}}, kWrong, "threads");
    KvCache other = make_cache(layer.config, {.batch = 3, .capacity = 8});
    expect_refused([&] { block.forward(x, y, {.cache = &other}); }, kWrong, "holds 3 sequences");
    KvCache strange(KvCacheConfig{.batch = 2, .kv_heads = 1, .key_dim = 8, .value_dim = 8, .capacity = 8});
    expect_refused([&] { block.forward(x, y, {.cache = &strange}); }, kWrong, "the layer needs 2 of 8 and 8");
}

TEST(MhaCacheErrors, RingsMustHoldWhatRowsSee) {
    constexpr ErrorCode kWrong = ErrorCode::invalid_argument;
    Layer layer(layers()[1].config);  // a window of 7 keys
    const MultiHeadAttention block(layer.config, layer.weights);
    const Tensor x = layer.rows(1, 9, kEmbed);
    KvCache small = make_cache(layer.config, {.capacity = 6, .kind = CacheKind::ring});
    expect_refused([&] { block.forward(x, {.cache = &small}); }, kWrong, "more keys than the ring's 6");
    EXPECT_EQ(small.length(0), 0);
    KvCache ring = make_cache(layer.config, {.capacity = 7, .kind = CacheKind::ring});
    const ForwardOptions dropping{.cache = &ring, .dropout = {.probability = 0.1}};
    expect_refused([&] { block.forward(x, dropping); }, kWrong, "pass fewer tokens");
    MhaConfig open = layer.config;
    open.mask = window(6, -1);
    const MultiHeadAttention both(open, layer.weights);
    expect_refused([&] { both.forward(x, {.cache = &ring}); }, kWrong, "causal");
}

}  // namespace
}  // namespace headwise
