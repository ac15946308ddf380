// Caches for tests: memory that starts out as NaN, tokens to append, and a plain list of what must be held.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <headwise/kv_cache.h>

#include "core/check.h"
#include "core/dtype.h"
#include "heads/kv_cache.h"

namespace headwise::test {

// Everything that is allocated while it lives starts out as NaN in every float type; `left` blocks more, then none.
class NanMemory {
public:
    explicit NanMemory(std::int64_t left = std::int64_t{1} << 40) : left_(left) {
        release_scratch();
        set_allocator({.context = this, .allocate = allocate, .deallocate = deallocate});
    }
    ~NanMemory() { set_allocator({}); }
    NanMemory(const NanMemory&) = delete;
    NanMemory& operator=(const NanMemory&) = delete;

    void allow(std::int64_t blocks) { left_ = blocks; }
    std::int64_t calls() const { return calls_; }

private:
    static void* allocate(void* context, std::size_t bytes, std::size_t alignment) {
        auto* self = static_cast<NanMemory*>(context);
        ++self->calls_;
        if (self->left_-- <= 0) return nullptr;
        const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
        void* memory = std::aligned_alloc(alignment, whole);
        if (memory != nullptr) std::memset(memory, 0xff, whole);
        return memory;
    }
    static void deallocate(void*, void* memory, std::size_t, std::size_t) { std::free(memory); }

    std::int64_t left_, calls_ = 0;
};

inline const char* name_of_kind(CacheKind kind) {
    return kind == CacheKind::contiguous ? "contiguous" : kind == CacheKind::ring ? "ring" : "paged";
}
inline const std::vector<CacheKind> kKinds = {CacheKind::contiguous, CacheKind::ring, CacheKind::paged};
inline const std::vector<CacheType> kTypes = {CacheType::f32, CacheType::bf16, CacheType::f16, CacheType::int8,
                                              CacheType::int4};

// k [B,T,G,D] and v [B,T,G,Dv] of normal numbers.
struct Tokens {
    Tensor k, v;

    Tokens(const KvCacheConfig& c, std::int64_t T, unsigned seed, DType dtype = DType::f32)
        : k(fill({c.batch, T, c.kv_heads, c.key_dim}, dtype, seed)),
          v(fill({c.batch, T, c.kv_heads, c.value_dim}, dtype, seed + 1)) {}

    void append_to(KvCache& cache, const ConstTensorView& counts = {}) const {
        cache.append(k, cache.config().value_in_key ? ConstTensorView{} : v.view(), counts);
    }

private:
    static Tensor fill(std::initializer_list<std::int64_t> sizes, DType dtype, unsigned seed) {
        Tensor tensor(dtype, sizes);
        std::mt19937 engine(seed);
        std::normal_distribution<double> normal;
        for (std::int64_t i = 0; i < tensor.count(); ++i) {
            store_f64(tensor.view().data, dtype, i, normal(engine));
        }
        return tensor;
    }
};

// Every token that each sequence was given: its k and v of all heads, side by side.
struct Shadow {
    using Token = std::vector<double>;
    std::vector<std::vector<Token>> keys, values;  // [B][length]

    explicit Shadow(std::int64_t batch)
        : keys(static_cast<std::size_t>(batch)), values(static_cast<std::size_t>(batch)) {}

    void append(const Tokens& tokens, const std::vector<std::int64_t>& counts) {
        for (std::size_t b = 0; b < keys.size(); ++b) {
            for (std::int64_t t = 0; t < counts[b]; ++t) {
                keys[b].push_back(token(tokens.k, static_cast<std::int64_t>(b), t));
                values[b].push_back(token(tokens.v, static_cast<std::int64_t>(b), t));
            }
        }
    }
    void truncate(std::size_t b, std::size_t length) { keys[b].resize(length), values[b].resize(length); }
    void reorder(const std::vector<std::int64_t>& from) {
        const Shadow old = *this;
        for (std::size_t b = 0; b < from.size(); ++b) {
            keys[b] = old.keys[static_cast<std::size_t>(from[b])];
            values[b] = old.values[static_cast<std::size_t>(from[b])];
        }
    }

    // The cache holds these tokens: all of them, or the newest of a ring and its first.
    void expect_held_by(const KvCache& cache) const {
        for (std::size_t n = 0; n < keys.size(); ++n) {
            const auto b = static_cast<std::int64_t>(n), length = static_cast<std::int64_t>(keys[n].size());
            ASSERT_EQ(cache.length(b), length);
            const std::int64_t first = cache.first_key(b);
            expect_equal(cache.keys(b, first, length - first), keys[n], first);
            expect_equal(cache.values(b, first, length - first), values[n], first);
            const std::int64_t kept = std::min(cache.config().keep_first, length);
            expect_equal(cache.keys(b, 0, kept), keys[n], 0);
            expect_equal(cache.values(b, 0, kept), values[n], 0);
        }
    }

private:
    static Token token(const ConstTensorView& view, std::int64_t b, std::int64_t t) {
        Token numbers;
        const std::int64_t width = view.size(2) * view.size(3);
        for (std::int64_t i = 0; i < width; ++i) {
            numbers.push_back(load_f64(view.data, view.dtype, b * view.stride(0) + t * view.stride(1) + i));
        }
        return numbers;
    }
    static void expect_equal(const Tensor& held, const std::vector<Token>& given, std::int64_t first) {
        const std::int64_t width = held.size(1) * held.size(2);
        for (std::int64_t t = 0; t < held.size(0); ++t) {
            const Token& want = given[static_cast<std::size_t>(first + t)];
            for (std::int64_t i = 0; i < width; ++i) {
                ASSERT_EQ(static_cast<double>(held.data<float>()[t * width + i]),
                          want[static_cast<std::size_t>(i)])
                    << "token " << first + t << ", number " << i;
            }
        }
    }
};

// All bytes of a cache that another call must leave alone: rows and lists.
inline std::string bytes_of(const KvCache& cache) {
    const KvCache::Impl& impl = cache.impl();
    std::string bytes(reinterpret_cast<const char*>(impl.pool->block(0)),
                      static_cast<std::size_t>(impl.pool->bytes()));
    for (const std::int32_t block : impl.table) bytes += text(block, ' ');
    for (const KvCache::Impl::Sequence& at : impl.sequences) bytes += text(at.length, ' ', at.first, ' ');
    return bytes + text(impl.pool->free_blocks());
}

inline std::string message_of(ErrorCode code, const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        return error.what();
    }
    return "accepted";
}

}  // namespace headwise::test
