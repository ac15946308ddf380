// Bytes of regular files: bounded positioned reads, and writes that either happen whole or not at all.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headwise {

// The system calls that can fail half way. Tests replace them to inject faults; nothing else may.
struct FileCalls {
    ssize_t (*read)(int file, void* buffer, std::size_t bytes, off_t offset);  // as pread
    ssize_t (*write)(int file, const void* buffer, std::size_t bytes);
    int (*sync)(int file);
};
extern FileCalls file_calls;

// An open regular file. Reads may run on several threads at once.
class InputFile {
public:
    explicit InputFile(const std::string& path);  // throws Error io
    ~InputFile();
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&&) = delete;

    const std::string& path() const noexcept { return path_; }
    std::int64_t size() const noexcept { return size_; }  // when it was opened

    // Exactly `bytes` from `offset`, a range inside size(). Throws Error io, also if the file has shrunk.
    void read(std::int64_t offset, void* buffer, std::int64_t bytes) const;

    // The whole file as text. Throws Error bad_data if it is larger than `limit`, which the message calls `limit_name`.
    std::string read_text(std::int64_t limit, const char* limit_name) const;

private:
    std::string path_;
    int file_ = -1;
    std::int64_t size_ = 0;
};

// A temporary file beside `path`; commit() puts it in place, the destructor removes it otherwise.
class OutputFile {
public:
    explicit OutputFile(const std::string& path);  // throws Error io
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write(const void* data, std::size_t bytes);
    void write(std::string_view text) { write(text.data(), text.size()); }
    void commit();

private:
    [[noreturn]] void fail_io(const char* what) const;  // with errno in words

    std::string path_, temporary_;
    int file_ = -1;
};

bool path_exists(const std::string& path);
bool is_directory(const std::string& path);

}  // namespace headwise
