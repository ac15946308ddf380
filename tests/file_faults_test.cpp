// System calls that stop short, are interrupted, or fail half way, and files that change under the reader.
#include <headwise/weights.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "file_support.h"
#include "weights/file.h"

namespace headwise {
namespace {

using namespace testing_support;

// What the next calls do. Calls are counted from 1; 0 = never.
struct Faults {
    std::size_t longest = SIZE_MAX;  // bytes moved by one call
    int interrupt_every = 0;         // EINTR at every such call
    int fail_at = 0;
    int error = EIO;
    bool sync_fails = false;
    int calls = 0;

    bool trips() {
        ++calls;
        if (calls == fail_at) return errno = error, true;
        if (interrupt_every > 0 && calls % interrupt_every == 0) return errno = EINTR, true;
        return false;
    }
};
Faults faults;

ssize_t faulty_read(int file, void* buffer, std::size_t bytes, off_t offset) {
    return faults.trips() ? -1 : ::pread(file, buffer, std::min(bytes, faults.longest), offset);
}
ssize_t faulty_write(int file, const void* buffer, std::size_t bytes) {
    return faults.trips() ? -1 : ::write(file, buffer, std::min(bytes, faults.longest));
}
int faulty_sync(int) { return faults.sync_fails ? (errno = EIO, -1) : 0; }

class FileFaults : public ::testing::Test {
protected:
    FileFaults() {
        for (int i = 0; i < 25; ++i) x_.data<float>()[i] = static_cast<float>(i);
        save_safetensors(path_, {{"x", x_}});
        save_npy(npy_, x_);
        faults = {};
        file_calls = {faulty_read, faulty_write, faulty_sync};
    }
    ~FileFaults() override { file_calls = saved_; }

    void expect_x(const Tensor& tensor) {
        ASSERT_EQ(tensor.count(), 25);
        EXPECT_EQ(std::memcmp(tensor.data<float>(), x_.data<float>(), 100), 0);
    }

    const FileCalls saved_ = file_calls;
    TempDir dir_;
    std::string path_ = dir_ / "x.safetensors", npy_ = dir_ / "x.npy";
    Tensor x_{DType::f32, {5, 5}};
};

TEST_F(FileFaults, ShortAndInterruptedReadsGoOn) {
    for (const std::size_t longest : {1u, 3u, 7u, 64u}) {
        faults = {.longest = longest, .interrupt_every = 2};
        expect_x(TensorFile(path_).load("x"));
        expect_x(load_npy(npy_));
        EXPECT_GT(faults.calls, 8);
    }
}

TEST_F(FileFaults, AnErrorAtAnyReadIsReported) {
    const auto read_both = [&] {
        expect_x(TensorFile(path_).load("x"));
        expect_x(load_npy(npy_));
    };
    faults = {.longest = 20};
    read_both();
    const int calls = faults.calls;
    for (int n = 1; n <= calls; ++n) {
        faults = {.longest = 20, .fail_at = n};
        expect_error(ErrorCode::io, {dir_.path(), "cannot read", std::strerror(EIO)}, read_both);
    }
}

TEST_F(FileFaults, AFileThatShrinksIsReported) {
    const TensorFile opened(path_);
    std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
    expect_error(ErrorCode::io, {path_, "when it was opened"}, [&] { opened.load("x"); });
    // Between the question for the size and the first read:
    const InputFile file(npy_);
    std::filesystem::resize_file(npy_, 5);
    expect_error(ErrorCode::io, {npy_, "ends at byte 5"}, [&] { file.read_text(1 << 20, "config_bytes"); });
}

TEST_F(FileFaults, AFileThatIsReplacedStaysAsItWasOpened) {
    const TensorFile opened(path_);
    Tensor other(DType::f32, {5, 5});
    save_safetensors(path_, {{"x", other}});
    expect_x(opened.load("x"));
}

TEST_F(FileFaults, ShortAndInterruptedWritesGoOn) {
    const std::string expected = get_file(path_), expected_npy = get_file(npy_);
    faults = {.longest = 3, .interrupt_every = 2};
    save_safetensors(path_, {{"x", x_}});
    save_npy(npy_, x_);
    EXPECT_EQ(get_file(path_), expected);
    EXPECT_EQ(get_file(npy_), expected_npy);
}

TEST_F(FileFaults, AFailedWriteChangesNothing) {
    const std::string before = get_file(path_), before_npy = get_file(npy_);
    const Tensor other(DType::f32, {7});
    const auto both_fail = [&](const Faults& next, int error) {
        faults = next;
        expect_error(ErrorCode::io, {path_, std::strerror(error), "nothing has changed"}, [&] {
            save_safetensors(path_, {{"y", other}});
        });
        faults = next;
        expect_error(ErrorCode::io, {npy_, std::strerror(error), "nothing has changed"},
                     [&] { save_npy(npy_, other); });
        EXPECT_EQ(get_file(path_), before);
        EXPECT_EQ(get_file(npy_), before_npy);
        EXPECT_EQ(dir_.list().size(), 2u);  // no temporary file is left
    };
    for (int n = 1; n <= 3; ++n) both_fail({.fail_at = n, .error = ENOSPC}, ENOSPC);
    both_fail({.sync_fails = true}, EIO);
}

TEST_F(FileFaults, MemoryThatIsRefusedIsReported) {
    struct Refusing {
        static void* allocate(void*, std::size_t, std::size_t) { return nullptr; }
        static void deallocate(void*, void*, std::size_t, std::size_t) {}
    };
    const TensorFile opened(path_);
    set_allocator({nullptr, Refusing::allocate, Refusing::deallocate});
    expect_error(ErrorCode::out_of_memory, {}, [&] { opened.load("x"); });
    expect_error(ErrorCode::out_of_memory, {}, [&] { load_npy(npy_); });
    set_allocator({});
    expect_x(opened.load("x"));
}

}  // namespace
}  // namespace headwise
