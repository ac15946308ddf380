#include "weights/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace headwise {
namespace {

constexpr std::int64_t kLongestCall = 1 << 30;  // Linux moves at most 2^31 - 4096 bytes in one call

std::string reason(int error) { return std::generic_category().message(error); }

void check_path(const std::string& path) {
    check(!path.empty(), "file: the path is empty");
    check(path.find('\0') == std::string::npos, "file: the path holds a zero byte after '", path.c_str(), "'");
}

}  // namespace

FileCalls file_calls = {::pread, ::write, ::fsync};

InputFile::InputFile(const std::string& path) : path_(path) {
    check_path(path);
    // O_NONBLOCK: opening a pipe that nobody writes to must not wait.
    file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file_ < 0) fail(ErrorCode::io, path, ": cannot open the file: ", reason(errno));
    struct stat status {};
    const int error = ::fstat(file_, &status) == 0 ? 0 : errno;
    if (error != 0 || !S_ISREG(status.st_mode)) {
        ::close(file_);
        if (error != 0) fail(ErrorCode::io, path, ": cannot ask for the size: ", reason(error));
        fail(ErrorCode::io, path, ": not a regular file");
    }
    size_ = status.st_size;
}

InputFile::~InputFile() {
    if (file_ >= 0) ::close(file_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)), size_(other.size_) {}

void InputFile::read(std::int64_t offset, void* buffer, std::int64_t bytes) const {
    auto* to = static_cast<std::byte*>(buffer);
    while (bytes > 0) {
        const auto step = static_cast<std::size_t>(std::min(bytes, kLongestCall));
        const ssize_t got = file_calls.read(file_, to, step, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail(ErrorCode::io, path_, ": cannot read at byte ", offset, ": ", reason(errno));
        if (got == 0) {
            fail(ErrorCode::io, path_, ": ends at byte ", offset, " but had ", size_,
                 " bytes when it was opened; something is changing it");
        }
        to += got;
        offset += got;
        bytes -= got;
    }
}

std::string InputFile::read_text(std::int64_t limit, const char* limit_name) const {
    if (size_ > limit) {
        fail(ErrorCode::bad_data, path_, ": ", size_, " bytes are more than the limit of ", limit,
             " (FileLimits::", limit_name, ")");
    }
    std::string text(static_cast<std::size_t>(size_), '\0');
    read(0, text.data(), size_);
    return text;
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
    check_path(path);
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        fail(ErrorCode::io, path, ": cannot be replaced, because it is not a regular file");
    }
    static std::atomic<unsigned> serial{0};
    for (int attempt = 0; file_ < 0 && attempt < 1000; ++attempt) {
        temporary_ = text(path, ".tmp-", ::getpid(), "-", serial++);
        file_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file_ < 0 && errno != EEXIST) break;
    }
    if (file_ < 0) fail_io("cannot make a temporary file beside it");
}

OutputFile::~OutputFile() {
    if (file_ < 0) return;
    ::close(file_);
    ::unlink(temporary_.c_str());
}

void OutputFile::fail_io(const char* what) const {
    fail(ErrorCode::io, path_, ": ", what, ": ", reason(errno), "; nothing has changed");
}

void OutputFile::write(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    while (bytes > 0) {
        const ssize_t put = file_calls.write(file_, from, std::min(bytes, static_cast<std::size_t>(kLongestCall)));
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = EIO;
        if (put <= 0) fail_io("cannot write");
        from += put;
        bytes -= static_cast<std::size_t>(put);
    }
}

void OutputFile::commit() {
    // The data must be on the disk before the name is, or a power cut could leave an empty file under it.
    if (file_calls.sync(file_) != 0) fail_io("cannot write");
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_io("cannot put the file in place");
    ::close(std::exchange(file_, -1));
}

bool path_exists(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace headwise
