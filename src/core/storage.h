// Aligned memory through the user's allocation hook, and scratch that is kept between calls.
#pragma once

#include <cstddef>
#include <memory>

#include <headwise/tensor.h>

namespace headwise {

inline constexpr std::size_t kAlignment = 64;

// 64-byte aligned, uninitialised; never null, even for 0 bytes. Throws Error out_of_memory.
std::shared_ptr<void> allocate(std::size_t bytes);

// a * b, or Error invalid_argument if it leaves 63 bits. `what` names the size in the message.
std::int64_t checked_multiply(std::int64_t a, std::int64_t b, const char* what);

// A block of scratch memory for the life of this object, from a process-wide list of blocks. A steady sequence of
// calls finds its blocks again and allocates nothing. Contents are unspecified.
class Scratch {
public:
    explicit Scratch(std::size_t bytes);  // throws Error out_of_memory
    ~Scratch();
    Scratch(Scratch&& other) noexcept;
    Scratch& operator=(Scratch&&) = delete;

    template <class T = std::byte>
    T* data() const noexcept {
        return static_cast<T*>(block_);
    }

private:
    void* block_ = nullptr;  // behind a header that knows its size and allocator
};

}  // namespace headwise
