// The allocation hook, failing allocations, and scratch that is kept between calls.
#include "core/storage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include <headwise/error.h>

#include "core/parallel.h"

namespace headwise {
namespace {

// Counts what headwise allocates, checks what it gives back, and can fail the n-th allocation.
class CountingAllocator {
public:
    CountingAllocator() {
        release_scratch();
        set_allocator({.context = this, .allocate = allocate, .deallocate = deallocate});
    }
    ~CountingAllocator() {
        set_allocator({});
        EXPECT_EQ(blocks.load(), 0) << "leaked";
        EXPECT_EQ(bytes.load(), 0) << "sizes given back differ from sizes asked for";
    }

    std::atomic<int> calls{0};
    std::atomic<int> blocks{0};
    std::atomic<std::int64_t> bytes{0};
    std::atomic<int> fail_at{0};  // 0: never
    bool misaligned = false;

private:
    static void* allocate(void* context, std::size_t bytes, std::size_t alignment) {
        auto* self = static_cast<CountingAllocator*>(context);
        if (++self->calls == self->fail_at) return nullptr;
        ++self->blocks;
        self->bytes += static_cast<std::int64_t>(bytes);
        auto* block = static_cast<char*>(
            std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment + alignment));
        std::memset(block, 0xff, bytes);
        return block + (self->misaligned ? 8 : 0);
    }
    static void deallocate(void* context, void* block, std::size_t bytes, std::size_t) {
        auto* self = static_cast<CountingAllocator*>(context);
        --self->blocks;
        self->bytes -= static_cast<std::int64_t>(bytes);
        std::free(static_cast<char*>(block) - (self->misaligned ? 8 : 0));
    }
};

// Some tensors, some scratch, in one thread and in several.
std::int64_t workload(int threads) {
    const Tensor first(DType::f32, {17, 33});
    const Tensor second = convert(first, DType::bf16);
    const Scratch outer(10'000);
    std::atomic<std::int64_t> sum{0};
    parallel_for({.threads = threads}, 8, [&](std::int64_t i) {
        const Scratch scratch(static_cast<std::size_t>(1000 * (i + 1)));
        std::memset(scratch.data(), static_cast<int>(i), static_cast<std::size_t>(1000 * (i + 1)));
        const Tensor inner(DType::f64, {i});
        sum += static_cast<std::int64_t>(scratch.data<unsigned char>()[999]) + inner.count();
    });
    return sum.load() + second.count();
}

TEST(Allocator, SeesEverythingAndGetsItBack) {
    CountingAllocator allocator;
    EXPECT_EQ(workload(1), 56 + 17 * 33);
    EXPECT_GT(allocator.calls.load(), 0);
    release_scratch();
    EXPECT_EQ(allocator.blocks.load(), 0);
}

TEST(Allocator, EveryFailingAllocationIsAnErrorAndNothingLeaks) {
    for (const int threads : {1, 3}) {
        int failures = 0;
        for (int n = 1; n < 200; ++n) {
            CountingAllocator allocator;
            allocator.fail_at = n;
            try {
                workload(threads);
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
                EXPECT_NE(std::string(error.what()).find("bytes"), std::string::npos) << error.what();
                ++failures;
            }
            const bool reached = allocator.calls.load() >= n;
            allocator.fail_at = 0;
            EXPECT_EQ(workload(threads), 56 + 17 * 33) << "works again after failure " << n;
            if (!reached) break;
        }
        EXPECT_GE(failures, 5) << threads << " threads";
        EXPECT_LT(failures, 100) << "the loop came to its end";
    }
}

TEST(Allocator, MustAlign) {
    CountingAllocator allocator;
    allocator.misaligned = true;
    EXPECT_THROW(allocate(100), Error);
    EXPECT_EQ(allocator.blocks.load(), 0);
}

TEST(Allocator, MemoryGoesBackWhereItCameFrom) {
    std::shared_ptr<void> ours;
    {
        CountingAllocator allocator;
        std::shared_ptr<void> theirs = allocate(10);
        auto scratch = std::make_unique<Scratch>(100);
        set_allocator({});
        ours = allocate(10);
        EXPECT_EQ(allocator.blocks.load(), 2);
        theirs.reset();
        scratch.reset();  // not kept: the allocator in force is another one
        EXPECT_EQ(allocator.blocks.load(), 0);
    }
    std::memset(ours.get(), 1, 10);
    EXPECT_THROW(set_allocator({.allocate = [](void*, std::size_t, std::size_t) -> void* { return nullptr; }}),
                 Error);
}

TEST(Allocator, AllocatesNothingAsWellAsMuch) {
    EXPECT_NE(allocate(0).get(), nullptr);
    EXPECT_THROW(allocate(SIZE_MAX), Error);
    EXPECT_THROW(allocate(SIZE_MAX - 63), Error);
    EXPECT_THROW(allocate(PTRDIFF_MAX), Error);
    EXPECT_THROW(Scratch(SIZE_MAX), Error);
    EXPECT_THROW(Scratch(PTRDIFF_MAX), Error);
}

TEST(Scratch, ASteadySequenceAllocatesNothing) {
    CountingAllocator allocator;
    const auto step = [](std::size_t base) {
        const Scratch a(base), b(10 * base), c(base + 1);
        const Scratch d = Scratch(0);
        EXPECT_NE(a.data(), c.data());
        EXPECT_NE(d.data(), nullptr);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % kAlignment, 0u);
    };
    step(100'000);
    const int calls = allocator.calls.load();
    for (int i = 0; i < 100; ++i) step(100'000);
    EXPECT_EQ(allocator.calls.load(), calls);
    step(1'000);
    EXPECT_EQ(allocator.calls.load(), calls) << "larger blocks serve";
    for (std::size_t tokens = 0; tokens < 100; ++tokens) step(100'000 + 64 * tokens);
    EXPECT_LE(allocator.calls.load(), calls + 8) << "growing slowly";
}

TEST(Scratch, SeveralThreadsNeverShareABlock) {
    CountingAllocator allocator;
    std::atomic<int> clashes{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([t, &clashes] {
            for (int round = 0; round < 2000; ++round) {
                const auto size = static_cast<std::size_t>(64 << (round + t) % 9);
                const Scratch one(size), two(size);
                std::memset(one.data(), t, size);
                std::memset(two.data(), t + 10, size);
                const auto* first = one.data<unsigned char>();
                const auto* second = two.data<unsigned char>();
                for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
                    if (first[at] != t || second[at] != t + 10) ++clashes;
                }
                if (round % 100 == t) release_scratch();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(clashes.load(), 0);
}

TEST(Scratch, KeepsNoMoreBlocksThanItHasPlacesFor) {
    CountingAllocator allocator;
    {
        std::vector<Scratch> many;
        for (std::size_t i = 1; i <= 100; ++i) many.emplace_back(i * 10'000);
    }
    EXPECT_EQ(allocator.blocks.load(), 32);
    const int calls = allocator.calls.load();
    const Scratch large(1'000'000);  // the largest ones were kept
    EXPECT_EQ(allocator.calls.load(), calls);
}

}  // namespace
}  // namespace headwise
