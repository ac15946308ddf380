// A steady call of the block allocates nothing: neither through the hook nor with operator new.
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/mha.h>

#include "mha_layer.h"

namespace {

std::atomic<int> allocations{0};

void* counted(std::size_t bytes) {
    ++allocations;
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return ++allocations, std::malloc(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return ++allocations, std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace headwise {
namespace {

void* hook_allocate(void*, std::size_t bytes, std::size_t alignment) {
    ++allocations;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void hook_deallocate(void*, void* memory, std::size_t, std::size_t) { std::free(memory); }

class Steady : public testing::Test {
protected:
    void SetUp() override { set_allocator({nullptr, hook_allocate, hook_deallocate}); }
    void TearDown() override { set_allocator({}); }
};

struct Shape {
    std::int64_t batch, tokens, embed, heads, kv_heads;
    int threads;
};

TEST_F(Steady, ForwardAllocatesOnlyAtFirst) {
    for (const Shape& shape : {Shape{1, 1, 64, 4, 4, 1}, Shape{2, 9, 64, 4, 2, 1}, Shape{1, 200, 128, 4, 1, 1},
                               Shape{3, 64, 96, 6, 3, 2}, Shape{1, 300, 256, 4, 4, 2}}) {
        MhaConfig config{.embed_dim = shape.embed, .heads = shape.heads, .kv_heads = shape.kv_heads};
        config.rope = Rope{};
        config.mask = causal();
        const MhaConfig full = resolve(config);
        const Tensor wq(DType::f32, {full.heads * full.head_dim, full.embed_dim});
        const Tensor wk(DType::f32, {full.kv_heads * full.head_dim, full.embed_dim});
        const Tensor wo(DType::f32, {full.embed_dim, full.heads * full.head_dim});
        MhaWeights weights;
        weights.q = wq, weights.k = wk, weights.v = wk, weights.o = wo;
        const MultiHeadAttention block(config, weights);
        const Tensor x(DType::f32, {shape.batch, shape.tokens, shape.embed});
        Tensor y(DType::f32, {shape.batch, shape.tokens, shape.embed});
        ForwardOptions options;
        options.execution.threads = shape.threads;
        // With two threads the number of blocks in use at once may still rise after the first calls.
        int quiet = 0;
        for (int call = 0; call < 50 && quiet < 5; ++call) {
            const int before = allocations;
            block.forward(x, y, options);
            quiet = allocations == before ? quiet + 1 : 0;
        }
        EXPECT_EQ(quiet, 5) << "T " << shape.tokens << ", threads " << shape.threads;
    }
}

// Decoding: tokens appended and attended to, into pages of a pool that was there from the start.
TEST_F(Steady, DecodingIntoACache) {
    for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged}) {
        for (const CacheType type : {CacheType::f32, CacheType::bf16, CacheType::int8, CacheType::int4}) {
            KvCacheConfig config{.batch = 2, .kv_heads = 2, .key_dim = 16, .value_dim = 16, .capacity = 200};
            config.kind = kind, config.type = type, config.page_size = 16;
            KvCache cache(config);
            const Tensor kv(DType::f32, {2, 1, 2, 16}), q(DType::f32, {2, 1, 4, 16});
            Tensor out(DType::f32, {2, 1, 4, 16});
            AttendInputs in;
            in.q = q, in.cache = &cache;
            int first = 0;
            for (int step = 0; step < 190; ++step) {
                if (step == 2) first = allocations;
                cache.append(kv, kv, {}, {.threads = 1});
                attend(in, {.out = out}, {.threads = 1});
            }
            EXPECT_EQ(allocations, first);
        }
    }
}

// The same through the whole block, with every part that has scratch of its own.
TEST_F(Steady, DecodeStepsOfALayer) {
    MhaConfig plain{.embed_dim = 32, .heads = 4, .kv_heads = 2, .mask = causal() & window(20, 0)};
    plain.rope = Rope{};
    MhaConfig parts = plain;
    parts.qk_norm = HeadNorm{}, parts.gate = Gate::element, parts.clip_qkv = 1, parts.temperature = Temperature{};
    parts.difference = HeadDifference{0.5}, parts.merged_norm = MergedNorm{}, parts.zero_key = true;
    MhaConfig latent{.embed_dim = 32, .heads = 4, .head_dim = 12, .mask = causal() & window(20, 0)};
    latent.latent = Latent{.q_rank = 8, .kv_rank = 16, .rope_dim = 4, .form = Latent::Form::absorbed};
    latent.rope = Rope{};
    MhaConfig routed{.embed_dim = 32, .kv_heads = 2, .head_dim = 8, .mask = causal() & window(20, 0)};
    routed.routing = Routing{.experts = 4, .top_k = 2};
    for (const MhaConfig& config : {plain, parts, latent, routed}) {
        for (const CacheKind kind : {CacheKind::contiguous, CacheKind::ring, CacheKind::paged}) {
            test::Layer layer(config);
            const MultiHeadAttention block(layer.config, layer.weights);
            KvCache cache = make_cache(layer.config, {.batch = 2, .capacity = 64, .kind = kind, .page_size = 16});
            const Tensor x = layer.rows(2, 1, 32);
            Tensor y(DType::f32, {2, 1, 32});
            int first = 0;
            for (int step = 0; step < 60; ++step) {  // angles of 64 positions are made at a time
                if (step == 3) first = allocations;
                block.forward(x, y, {.cache = &cache, .execution = {.threads = 1}});
            }
            EXPECT_EQ(allocations, first);
        }
    }
}

}  // namespace
}  // namespace headwise
