#include "core/storage.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "core/check.h"

namespace headwise {
namespace {

void* default_allocate(void*, std::size_t bytes, std::size_t alignment) {
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
void default_deallocate(void*, void* pointer, std::size_t, std::size_t) { std::free(pointer); }

constexpr Allocator kDefaultAllocator = {nullptr, default_allocate, default_deallocate};
Allocator current_allocator = kDefaultAllocator;

// In front of every block, so that it goes back where it came from.
struct alignas(kAlignment) Header {
    Allocator allocator;
    std::size_t bytes;  // of the whole block, header included
};

void* allocate_block(std::size_t bytes) {
    const std::size_t total = bytes + sizeof(Header);
    if (total < bytes || total > static_cast<std::size_t>(PTRDIFF_MAX)) {
        fail(ErrorCode::out_of_memory, "allocate: ", bytes, " bytes are more than an address space holds");
    }
    const Allocator allocator = current_allocator;
    void* block = allocator.allocate(allocator.context, total, kAlignment);
    if (block == nullptr) fail(ErrorCode::out_of_memory, "allocate: no memory for ", bytes, " bytes");
    return new (block) Header{allocator, total} + 1;
}

Header* header_of(void* block) noexcept { return static_cast<Header*>(block) - 1; }

void free_block(void* block) noexcept {
    Header* header = header_of(block);
    const Allocator allocator = header->allocator;
    allocator.deallocate(allocator.context, header, header->bytes, kAlignment);
}

// Blocks between two leases. The flag is only ever tried, never waited for: where another thread holds it (or held it
// when this process was forked), the block is simply allocated or freed.
class FreeList {
public:
    // The smallest kept block of at least `bytes`, or null.
    void* take(std::size_t bytes) noexcept {
        if (busy_.test_and_set(std::memory_order_acquire)) return nullptr;
        std::size_t best = kSlots;
        for (std::size_t i = 0; i < kSlots; ++i) {
            if (slots_[i] == nullptr || capacity(slots_[i]) < bytes) continue;
            if (best == kSlots || capacity(slots_[i]) < capacity(slots_[best])) best = i;
        }
        void* block = best == kSlots ? nullptr : std::exchange(slots_[best], nullptr);
        busy_.clear(std::memory_order_release);
        return block;
    }

    // Keeps the block; with all slots full the smallest block goes.
    void give(void* block) noexcept {
        if (busy_.test_and_set(std::memory_order_acquire)) return free_block(block);
        std::size_t smallest = 0;
        for (std::size_t i = 0; i < kSlots; ++i) {
            if (slots_[i] == nullptr) {
                smallest = i;
                break;
            }
            if (capacity(slots_[i]) < capacity(slots_[smallest])) smallest = i;
        }
        if (slots_[smallest] == nullptr || capacity(slots_[smallest]) < capacity(block)) {
            std::swap(slots_[smallest], block);
        }
        busy_.clear(std::memory_order_release);
        if (block != nullptr) free_block(block);
    }

    void clear() noexcept {
        if (busy_.test_and_set(std::memory_order_acquire)) return;
        const auto blocks = std::exchange(slots_, {});
        busy_.clear(std::memory_order_release);
        for (void* block : blocks) {
            if (block != nullptr) free_block(block);
        }
    }

    ~FreeList() { clear(); }

private:
    static constexpr std::size_t kSlots = 32;
    static std::size_t capacity(void* block) noexcept { return header_of(block)->bytes - sizeof(Header); }

    std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
    std::array<void*, kSlots> slots_{};
};

FreeList free_list;

}  // namespace

std::shared_ptr<void> allocate(std::size_t bytes) { return {allocate_block(bytes), free_block}; }

std::int64_t checked_multiply(std::int64_t a, std::int64_t b, const char* what) {
    std::int64_t product = 0;
    check(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product), what, ": ", a, " * ", b,
          " is not a size that memory can have");
    return product;
}

Scratch::Scratch(std::size_t bytes) : block_(free_list.take(bytes)) {
    if (block_ == nullptr) block_ = allocate_block(bytes);
}
Scratch::~Scratch() {
    if (block_ != nullptr) free_list.give(block_);
}
Scratch::Scratch(Scratch&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}

void set_allocator(const Allocator& allocator) {
    const bool restore = allocator.allocate == nullptr && allocator.deallocate == nullptr;
    check(restore || (allocator.allocate != nullptr && allocator.deallocate != nullptr),
          "set_allocator: allocate and deallocate must be given together");
    current_allocator = restore ? kDefaultAllocator : allocator;
    free_list.clear();
}

void release_scratch() noexcept { free_list.clear(); }

}  // namespace headwise
