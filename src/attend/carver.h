// Scratch of a task, cut into arrays.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/storage.h"

namespace headwise {

// Carves aligned arrays out of a block of scratch; with a null block it only counts.
class Carver {
public:
    explicit Carver(void* block) noexcept : begin_(static_cast<std::byte*>(block)) {}

    template <class T>
    T* take(std::int64_t count) noexcept {
        constexpr auto kStep = static_cast<std::int64_t>(kAlignment);
        const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
        T* array = begin_ == nullptr ? nullptr : reinterpret_cast<T*>(begin_ + used_);
        used_ += static_cast<std::size_t>((bytes + kStep - 1) / kStep * kStep);
        return array;
    }
    std::size_t used() const noexcept { return used_; }

private:
    std::byte* begin_;
    std::size_t used_ = 0;
};

}  // namespace headwise
