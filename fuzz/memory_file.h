// A regular file that lives in memory, for readers that take a path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace headwise::fuzz {

class MemoryFile {
public:
    explicit MemoryFile(std::string_view content) : file_(::memfd_create("input", MFD_CLOEXEC)) {
        if (file_ < 0 || ::write(file_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
            std::abort();
        }
    }
    ~MemoryFile() { ::close(file_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

private:
    int file_;
};

}  // namespace headwise::fuzz
