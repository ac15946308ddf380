// Memory between two pages that fault on any access: proves that a kernel stays inside its row.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <new>

namespace headwise {

// `count` elements that end directly before a forbidden page (at_end) or begin directly behind one (at_start).
template <class T>
class Guarded {
public:
    enum Place { at_start, at_end };

    Guarded(std::size_t count, Place place) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t room = (count * sizeof(T) + page - 1) / page * page + (count == 0 ? page : 0);
        bytes_ = room + 2 * page;
        void* block = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED) throw std::bad_alloc();
        block_ = static_cast<char*>(block);
        if (mprotect(block_ + page, room, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
        data_ = reinterpret_cast<T*>(block_ + page + (place == at_end ? room - count * sizeof(T) : 0));
    }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;
    ~Guarded() { munmap(block_, bytes_); }

    T* data() const { return data_; }

private:
    char* block_ = nullptr;
    std::size_t bytes_ = 0;
    T* data_ = nullptr;
};

}  // namespace headwise
