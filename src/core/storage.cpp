#include "core/storage.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
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

bool same(const Allocator& a, const Allocator& b) noexcept {
    return a.context == b.context && a.allocate == b.allocate && a.deallocate == b.deallocate;
}

Header* allocate_block(std::size_t bytes) {
    const std::size_t total = bytes + sizeof(Header);
    if (total < bytes || total > static_cast<std::size_t>(PTRDIFF_MAX)) {
        fail(ErrorCode::out_of_memory, "allocate: ", bytes, " bytes are more than an address space holds");
    }
    const Allocator allocator = current_allocator;
    void* block = allocator.allocate(allocator.context, total, kAlignment);
    if (block == nullptr) fail(ErrorCode::out_of_memory, "allocate: no memory for ", bytes, " bytes");
    if (reinterpret_cast<std::uintptr_t>(block) % kAlignment != 0) {
        allocator.deallocate(allocator.context, block, total, kAlignment);
        fail(ErrorCode::invalid_argument,
             "allocate: the allocator of set_allocator() returned an address that is no ", "multiple of the ",
             kAlignment, " bytes that it was asked for");
    }
    return new (block) Header{allocator, total};
}

void free_block(Header* block) noexcept {
    const Allocator allocator = block->allocator;
    allocator.deallocate(allocator.context, block, block->bytes, kAlignment);
}

// Scratch blocks between two leases. No lock, so a fork or a stopped thread at any point costs the others at most a slot:
// a block belongs to whoever swaps it out of its slot.
class FreeList {
public:
    // The smallest kept block of at least `bytes`, or null.
    Header* take(std::size_t bytes) noexcept {
        for (std::size_t attempt = 0; attempt < kSlots; ++attempt) {  // again where another thread was faster
            Slot* best = nullptr;
            Header* found = nullptr;
            for (Slot& slot : slots_) {
                Header* block = slot.block.load(std::memory_order_relaxed);
                const std::size_t size = slot.bytes.load(std::memory_order_relaxed);
                if (block == nullptr || block == &filling_ || size < bytes) continue;
                if (best != nullptr && best->bytes.load(std::memory_order_relaxed) <= size) continue;
                best = &slot;
                found = block;
            }
            if (best == nullptr) return nullptr;
            if (!best->block.compare_exchange_strong(found, nullptr, std::memory_order_acquire)) continue;
            if (found->bytes >= bytes) return found;
            give(found);  // the slot changed hands between the two loads
        }
        return nullptr;
    }

    // Keeps the block; with all slots full the smallest block goes.
    void give(Header* block) noexcept {
        if (closed_.load(std::memory_order_relaxed) || !same(block->allocator, current_allocator)) {
            return free_block(block);
        }
        Slot* smallest = nullptr;
        for (Slot& slot : slots_) {
            if (put(slot, nullptr, block)) return;
            if (smallest == nullptr ||
                slot.bytes.load(std::memory_order_relaxed) < smallest->bytes.load(std::memory_order_relaxed)) {
                smallest = &slot;
            }
        }
        Header* other = smallest->block.load(std::memory_order_relaxed);
        const bool larger = smallest->bytes.load(std::memory_order_relaxed) < block->bytes;
        if (larger && other != &filling_ && put(*smallest, other, block)) {
            if (other != nullptr) free_block(other);
        } else {
            free_block(block);
        }
    }

    // Frees what is kept; with `only_ours` just the blocks of the built-in allocator.
    void clear(bool only_ours = false) noexcept {
        for (Slot& slot : slots_) {
            Header* block = slot.block.load(std::memory_order_relaxed);
            if (block == nullptr || block == &filling_) continue;
            if (!slot.block.compare_exchange_strong(block, nullptr, std::memory_order_acquire)) continue;
            if (only_ours && !same(block->allocator, kDefaultAllocator)) {
                put(slot, nullptr, block);
            } else {
                free_block(block);
            }
        }
    }

    // At exit, and when the shared library is unloaded. A host's allocator may be gone by now: its blocks stay.
    void close() noexcept {
        closed_.store(true, std::memory_order_relaxed);
        clear(true);
    }

private:
    static constexpr std::size_t kSlots = 32;
    struct Slot {
        std::atomic<Header*> block{nullptr};
        std::atomic<std::size_t> bytes{0};  // of the block; a hint until the block is taken out
    };

    // Swaps `expected` for `block`; false if the slot holds something else.
    bool put(Slot& slot, Header* expected, Header* block) noexcept {
        if (slot.block.load(std::memory_order_relaxed) != expected) return false;
        if (!slot.block.compare_exchange_strong(expected, &filling_, std::memory_order_acquire)) return false;
        slot.bytes.store(block->bytes, std::memory_order_relaxed);
        slot.block.store(block, std::memory_order_release);
        return true;
    }

    Header filling_{};  // its address marks a slot that is being filled
    std::array<Slot, kSlots> slots_{};
    std::atomic<bool> closed_{false};
};

// Never destroyed: threads may still compute while static objects die.
constinit FreeList free_list;

struct CloseAtExit {
    ~CloseAtExit() { free_list.close(); }
} close_at_exit;

// Sizes of scratch come in eight steps per power of two, so that a problem that grows by one token at a time, as in
// decoding, finds its blocks again. At most one eighth is wasted.
std::size_t scratch_bytes(std::size_t bytes) noexcept {
    if (bytes > static_cast<std::size_t>(PTRDIFF_MAX)) return bytes;  // refused when it is allocated
    const std::size_t step = std::max<std::size_t>(4096, std::bit_floor(bytes) / 8);
    return (bytes + sizeof(Header) + step - 1) / step * step - sizeof(Header);
}

}  // namespace

std::shared_ptr<void> allocate(std::size_t bytes) {
    Header* block = allocate_block(bytes);
    try {
        return {static_cast<void*>(block + 1), [](void* data) { free_block(static_cast<Header*>(data) - 1); }};
    } catch (const std::bad_alloc&) {  // the counter beside it; the block is already freed
        fail(ErrorCode::out_of_memory, "allocate: no memory beside ", bytes, " bytes");
    }
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b, const char* what) {
    std::int64_t product = 0;
    check(a >= 0 && b >= 0 && !__builtin_mul_overflow(a, b, &product), what, ": ", a, " * ", b,
          " is not a size that memory can have");
    return product;
}

Scratch::Scratch(std::size_t bytes) {
    const std::size_t rounded = scratch_bytes(bytes);
    Header* block = free_list.take(rounded + sizeof(Header));
    if (block == nullptr) block = allocate_block(rounded);
    block_ = block + 1;
}
Scratch::~Scratch() {
    if (block_ != nullptr) free_list.give(static_cast<Header*>(block_) - 1);
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
