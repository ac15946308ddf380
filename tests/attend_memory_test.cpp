// Memory of attend(): none on the direct path, none in steady calls, and little whatever the batch and the heads.
#include <atomic>

#include "attend_cases.h"
#include "isas.h"

namespace headwise::test {
namespace {

// Counts what the allocation hook is asked for, for the life of this object.
class CountingAllocator {
public:
    CountingAllocator() { set_allocator({.context = this, .allocate = allocate, .deallocate = deallocate}); }
    ~CountingAllocator() { set_allocator({}); }
    CountingAllocator(const CountingAllocator&) = delete;
    CountingAllocator& operator=(const CountingAllocator&) = delete;

    std::int64_t calls() const { return calls_; }
    std::int64_t bytes() const { return bytes_; }

private:
    static void* allocate(void* context, std::size_t bytes, std::size_t alignment) {
        auto* self = static_cast<CountingAllocator*>(context);
        ++self->calls_;
        self->bytes_ += static_cast<std::int64_t>(bytes);
        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    }
    static void deallocate(void* context, void* pointer, std::size_t bytes, std::size_t) {
        static_cast<CountingAllocator*>(context)->bytes_ -= static_cast<std::int64_t>(bytes);
        std::free(pointer);
    }

    std::atomic<std::int64_t> calls_ = 0, bytes_ = 0;
};

// A problem with its output, made before anything is counted.
struct Ready {
    Operands x;
    Operand out;
    explicit Ready(const Shape& s) : x(s), out(s.B, s.T, s.H, s.Dv, DType::f32, Layout::bthd) {}
    void call(int threads) const { attend(kernels(), x.inputs(), {.out = out.view}, {.threads = threads}); }
};

TEST(AttendMemory, DecodingAndSmallProblemsAllocateNothing) {
    const Ready decode({.B = 2, .T = 1, .S = 700, .H = 8, .G = 2, .D = 64, .Dv = 64});
    const Ready small({.T = 8, .S = 8, .H = 1, .G = 1, .D = 16, .Dv = 16});
    const CountingAllocator counter;
    decode.call(1), small.call(1);
    EXPECT_EQ(counter.calls(), 0);
}

TEST(AttendMemory, SteadyCallsAllocateNothing) {
    const Ready packed({.B = 2, .T = 100, .S = 300, .H = 4, .G = 2, .D = 32, .Dv = 32});
    const Ready wide({.T = 3, .S = 40, .H = 4, .G = 1, .D = 576, .Dv = 512});
    const CountingAllocator counter;
    packed.call(1), wide.call(1);
    const std::int64_t first = counter.calls();
    EXPECT_GT(first, 0);
    for (int i = 0; i < 5; ++i) packed.call(1), wide.call(1);
    EXPECT_EQ(counter.calls(), first);
}

TEST(AttendMemory, OneKvHeadForEachThreadIsPackedAtATime) {
    const std::int64_t S = 1000, D = 64, one_head = 2 * (S + 128) * D * 4, per_thread = 2 << 20;
    for (const int threads : {1, 2}) {
        for (const std::int64_t G : {1, 2, 40}) {
            const Ready problem({.B = 1, .T = 40, .S = S, .H = G, .G = G, .D = D, .Dv = D});
            const CountingAllocator counter;
            problem.call(threads);
            EXPECT_LE(counter.bytes(), threads * (one_head + per_thread))
                << threads << " threads, " << G << " kv heads";
            EXPECT_GT(counter.bytes(), one_head / 2);
        }
    }
}

// Memory that runs out in a task is an error of the call, not the end of the program.
TEST(AttendMemory, OutOfMemoryIsAnError) {
    const Ready packed({.B = 20, .T = 60, .S = 300, .H = 2, .G = 2, .D = 32, .Dv = 32});
    release_scratch();
    set_allocator({.context = nullptr,
                   .allocate = [](void*, std::size_t, std::size_t) -> void* { return nullptr; },
                   .deallocate = [](void*, void*, std::size_t, std::size_t) {}});
    for (const int threads : {1, 2}) {
        try {
            packed.call(threads);
            ADD_FAILURE() << "no error";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
        }
    }
    set_allocator({});
    packed.call(2);
}

}  // namespace
}  // namespace headwise::test
