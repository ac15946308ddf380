// Damaged GGUF files: cut at every byte, every bit flipped, system calls that fail. Whatever arrives, the answer is the
// file's content or an Error that blames the file, and no more memory is asked for than the file justifies.
#include <headwise/weights.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "file_support.h"
#include "gguf_support.h"
#include "grid.h"
#include "largest_new.h"
#include "weights/file.h"

namespace headwise {
namespace {

using namespace testing_support;

std::string valid_file() {
    GgufBuilder builder;
    builder.text("general.architecture", "test").u32("test.size", 7).f32("test.real", 1.5f);
    builder.key("test.flag", kBool, "\1").key("test.large", kU64, little(1ull << 40));
    builder.key("test.list", kArray, little(kI32, 4) + little(3) + std::string(12, '\1'));
    builder.key("test.words", kArray, little(kText, 4) + little(2) + gguf_text("ab") + gguf_text(""));
    builder.key("test.nested", kArray,
                little(kArray, 4) + little(1) + little(kU8, 4) + little(2) + std::string("\1\2"));
    builder.tensor("plain", {3, 2}, kTensorF32, floats({1, 2, 3, 4, 5, 6}));
    builder.tensor("blocks", {32, 2}, kTensorQ8_0, std::string(68, '\1'));
    builder.tensor("other", {32}, kTensorIq4Nl, std::string(18, '\1'));
    return builder.build();
}

// Counts what headwise asks of its allocation hook.
class CountingAllocator {
public:
    CountingAllocator() { set_allocator({nullptr, allocate, deallocate}); }
    ~CountingAllocator() { set_allocator({}); }

private:
    static void* allocate(void*, std::size_t bytes, std::size_t alignment) {
        note_request(largest_new, bytes);
        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    }
    static void deallocate(void*, void* memory, std::size_t, std::size_t) { std::free(memory); }
};

// Whether the file is accepted; in any case it must behave.
bool reads_well(const std::string& path, std::size_t file_bytes) {
    largest_new = 0;
    std::optional<TensorFile> file;
    try {
        file.emplace(path);
        for (const std::string& name : file->names()) {
            try {
                file->load(name);
            } catch (const Error& error) {
                EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
            }
        }
    } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::bad_data || error.code() == ErrorCode::unsupported) << error.what();
        EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    }
    EXPECT_LE(largest_new, 4096 + 16 * 1024 + 32 * file_bytes);
    return file.has_value();
}

class HostileGguf : public ::testing::Test {
protected:
    bool reads(const std::string& bytes) {
        put_file(path_, bytes);
        return reads_well(path_, bytes.size());
    }

    CountingAllocator allocator_;
    TempDir dir_;
    std::string path_ = dir_ / "x.gguf";
    const std::string valid_ = valid_file();
};

TEST_F(HostileGguf, EveryPrefixIsRefused) {
    ASSERT_TRUE(reads(valid_));
    for (std::size_t length = 0; length < valid_.size(); ++length) {
        EXPECT_FALSE(reads(valid_.substr(0, length))) << length;
    }
}

TEST_F(HostileGguf, EveryBitMayFlip) {
    int accepted = 0;
    for (std::size_t at = 0; at < valid_.size(); ++at) {
        for (int bit = 0; bit < 8; ++bit) {
            std::string bytes = valid_;
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
            accepted += reads(bytes);
        }
    }
    EXPECT_GT(accepted, 1000);  // values of keys, letters of names, data
    EXPECT_LT(accepted, static_cast<int>(valid_.size()) * 8 - 1000);
}

// Every field of 8 bytes becomes, in turn, each of the numbers that arithmetic trips over.
TEST_F(HostileGguf, EveryFieldMayBeExtreme) {
    constexpr std::uint64_t kExtremes[] = {0,          1,          1ull << 31, 1ull << 32, 1ull << 61,
                                           1ull << 62, 1ull << 63, ~0ull,      ~0ull - 31};
    const std::size_t step = full_grid() ? 1 : 7;
    for (std::size_t at = 4; at + 8 <= valid_.size(); at += step) {
        for (const std::uint64_t extreme : kExtremes) {
            std::string bytes = valid_;
            bytes.replace(at, 8, little(extreme));
            reads(bytes);
        }
    }
}

TEST_F(HostileGguf, CountsAreCheckedBeforeTheyAreBelieved) {
    GgufBuilder tensors, keys;
    tensors.more_tensors = std::uint64_t{1} << 40;
    keys.more_keys = ~std::uint64_t{0} >> 1;
    for (const GgufBuilder* builder : {&tensors, &keys}) {
        put_file(path_, builder->build());
        expect_error(ErrorCode::bad_data, {path_, "cannot hold so many"}, [&] { TensorFile file(path_); });
    }
}

// ---- system calls ------------------------------------------------------------------------------------------

int calls = 0, fail_at = 0;
std::size_t longest = SIZE_MAX;

ssize_t faulty_read(int file, void* buffer, std::size_t bytes, off_t offset) {
    if (++calls == fail_at) return errno = EIO, -1;
    if (calls % 3 == 0) return errno = EINTR, -1;
    return ::pread(file, buffer, std::min(bytes, longest), offset);
}

class GgufFaults : public HostileGguf {
protected:
    GgufFaults() {
        put_file(path_, valid_);
        calls = fail_at = 0;
        file_calls.read = faulty_read;
    }
    ~GgufFaults() override { file_calls = saved_; }
    void read_all() {
        const TensorFile file(path_);
        EXPECT_EQ(file.load("plain").data<float>()[5], 6);
        EXPECT_EQ(file.load("blocks").count(), 64);
    }
    const FileCalls saved_ = file_calls;
};

TEST_F(GgufFaults, ShortAndInterruptedReadsGoOn) {
    for (const std::size_t bytes : {1u, 5u, 64u}) {
        longest = bytes;
        read_all();
    }
}

TEST_F(GgufFaults, AnErrorAtAnyReadIsReported) {
    longest = 20;
    read_all();
    for (int n = 1, last = calls; n <= last; ++n) {
        if (n % 3 == 0) continue;  // interrupted, not failed
        calls = 0;
        fail_at = n;
        expect_error(ErrorCode::io, {path_, "cannot read", std::strerror(EIO)}, [&] { read_all(); });
    }
}

TEST_F(GgufFaults, AFileThatShrinksIsReported) {
    longest = SIZE_MAX;
    const TensorFile opened(path_);
    std::filesystem::resize_file(path_, valid_.size() - 128);
    expect_error(ErrorCode::io, {path_, "when it was opened"}, [&] { opened.load("blocks"); });
}

}  // namespace
}  // namespace headwise
