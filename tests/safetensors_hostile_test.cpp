// Damaged files, differentially: our reader and the one in safetensors_support.h must agree on every file that is
// random, cut short or altered, and ours must never ask for memory that the file does not justify.
#include <headwise/weights.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>

#include "file_support.h"
#include "grid.h"
#include "largest_new.h"
#include "safetensors_support.h"

namespace headwise {
namespace {

using namespace testing_support;

// Counts what headwise asks of its allocation hook.
class CountingAllocator {
public:
    CountingAllocator() { set_allocator({this, allocate, deallocate}); }
    ~CountingAllocator() { set_allocator({}); }
    std::atomic<std::size_t> largest{0};

private:
    static void* allocate(void* self, std::size_t bytes, std::size_t alignment) {
        note_request(static_cast<CountingAllocator*>(self)->largest, bytes);
        return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    }
    static void deallocate(void*, void* memory, std::size_t, std::size_t) { std::free(memory); }
};

class Hostile : public ::testing::Test {
protected:
    // Reads `bytes` with both readers. Returns whether ours accepted the file.
    bool compare(const std::string& bytes) {
        put_file(path_, bytes);
        std::optional<SimpleFile> simple;
        std::string simple_reason, reason;
        try {
            simple = read_simply(bytes);
        } catch (const std::runtime_error& error) {
            simple_reason = error.what();
        }
        largest_new = 0;
        allocator_.largest = 0;
        std::optional<TensorFile> file;
        try {
            file.emplace(path_);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::bad_data) << error.what();
            reason = error.what();
        }
        if (file && simple) compare_content(*file, *simple);
        // Trees and tables of the header cost a multiple of its text; 4096 covers the constants of streams.
        EXPECT_LE(largest_new, 4096 + 16 * bytes.size());
        EXPECT_LE(allocator_.largest, 256 + bytes.size());
        if (file.has_value() != simple.has_value())
            differences_.push_back({bytes, simple ? reason : simple_reason});
        return file.has_value();
    }

    static void compare_content(const TensorFile& file, const SimpleFile& simple) {
        ASSERT_EQ(file.names().size(), simple.tensors.size());
        EXPECT_EQ(file.metadata(), simple.metadata);
        for (const auto& [name, tensor] : simple.tensors) {
            const auto info = file.find(name);
            ASSERT_TRUE(info) << name;
            EXPECT_EQ(info->stored_dtype, tensor.dtype);
            EXPECT_EQ(info->sizes, tensor.shape);
            try {
                const Tensor loaded = file.load(name);
                ASSERT_EQ(static_cast<std::size_t>(loaded.count()) * size_of(loaded.dtype()), tensor.bytes.size());
                EXPECT_EQ(std::memcmp(loaded.data<char>(), tensor.bytes.data(), tensor.bytes.size()), 0) << name;
            } catch (const Error& error) {
                if (error.code() == ErrorCode::unsupported) continue;  // a type that DType lacks
                EXPECT_EQ(tensor.dtype, "BOOL") << error.what();
                EXPECT_EQ(error.code(), ErrorCode::bad_data) << error.what();
            }
        }
    }

    struct Difference {
        std::string bytes, reason;
    };
    std::vector<Difference> differences_;  // files that only one of the two accepts
    TempDir dir_;
    std::string path_ = dir_ / "x.safetensors";
    CountingAllocator allocator_;
};

const std::string_view kValidHeader =
    R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BOOL","shape":[1,3],"data_offsets":[8,11]},)"
    R"("__metadata__":{"k":"v"}} )";
const std::string kValid = safetensors(kValidHeader, std::string("\0\0\0\0\0\0\0\0\1\0\1", 11));

TEST_F(Hostile, EveryPrefixIsRefused) {
    ASSERT_TRUE(compare(kValid));
    for (std::size_t length = 0; length < kValid.size(); ++length) {
        EXPECT_FALSE(compare(kValid.substr(0, length))) << length;
    }
    EXPECT_TRUE(differences_.empty());
}

// 255 values for every byte of the length field and the header (8 on the thin grid: one bit each). The readers may differ only where ours reads JSON that
// the simple one does not: escapes, other white space, and text that is not ASCII.
TEST_F(Hostile, EveryByteOfTheHeaderMayChange) {
    int accepted = 0;
    for (std::size_t at = 0; at < 8 + kValidHeader.size(); ++at) {
        for (int value = 1; value < 256; value = full_grid() ? value + 1 : value * 2) {
            std::string bytes = kValid;
            bytes[at] = static_cast<char>(bytes[at] ^ value);
            accepted += compare(bytes);
        }
    }
    EXPECT_GT(accepted, 26);  // at least other letters in a name
    for (const Difference& difference : differences_) {
        const std::string header = difference.bytes.substr(8, kValidHeader.size());
        const bool beyond_simple = header.find_first_of("\t\n\r\\\x7f") != std::string::npos;
        EXPECT_TRUE(beyond_simple) << header << ": " << difference.reason;
    }
}

// ---- random files ------------------------------------------------------------------------------------------

std::uint64_t seed() {
    const char* text = std::getenv("HEADWISE_TEST_SEED");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 20240607;
}

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::size_t below(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
    char byte() { return static_cast<char>(engine_()); }

    std::string name() {
        constexpr std::string_view kLetters = "abcxyz._0:/ \"\\";
        std::string result;
        for (std::size_t n = below(12); n > 0; --n) result += kLetters[below(kLetters.size())];
        return result;
    }

private:
    std::mt19937_64 engine_;
};

Tensor random_tensor(Random& random) {
    constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16,    DType::f64,
                                DType::i32, DType::i64,  DType::boolean};
    std::vector<std::int64_t> sizes(random.below(5));
    for (auto& size : sizes) size = static_cast<std::int64_t>(random.below(5));
    Tensor tensor(kTypes[random.below(7)], sizes);
    auto* bytes = tensor.data<char>();
    const auto count = static_cast<std::size_t>(tensor.count()) * size_of(tensor.dtype());
    for (std::size_t i = 0; i < count; ++i) {
        bytes[i] = tensor.dtype() == DType::boolean ? static_cast<char>(random.below(2)) : random.byte();
    }
    return tensor;
}

TEST_F(Hostile, WhatIsWrittenIsReadBack) {
    RecordProperty("seed", std::to_string(seed()));
    SCOPED_TRACE("HEADWISE_TEST_SEED=" + std::to_string(seed()));
    Random random(seed());
    for (int round = 0; round < (full_grid() ? 1000 : 100); ++round) {
        std::map<std::string, Tensor> tensors;
        for (std::size_t n = random.below(6); n > 0; --n)
            tensors.insert_or_assign(random.name(), random_tensor(random));
        std::map<std::string, std::string> metadata;
        for (std::size_t n = random.below(3); n > 0; --n) metadata[random.name()] = random.name();
        std::vector<std::pair<std::string, ConstTensorView>> views(tensors.begin(), tensors.end());
        std::reverse(views.begin(), views.end());
        save_safetensors(path_, views, metadata);

        const std::string bytes = get_file(path_);
        const SimpleFile simple = read_simply(bytes);
        EXPECT_EQ(simple.metadata, metadata);
        ASSERT_EQ(simple.tensors.size(), tensors.size());
        for (const auto& [name, tensor] : tensors) {
            const SimpleTensor& stored = simple.tensors.at(name);
            ASSERT_EQ(std::memcmp(stored.bytes.data(), tensor.data<char>(), stored.bytes.size()), 0) << name;
            EXPECT_EQ((8 + simple.header_bytes + stored.begin) % size_of(tensor.dtype()), 0u) << name;
        }
        EXPECT_TRUE(compare(bytes));
        if (HasFailure()) FAIL() << "round " << round;
    }
    EXPECT_TRUE(differences_.empty());
}

// Changes one number, one word or one place of a header.
std::string perturb(std::string header, Random& random) {
    constexpr std::string_view kNumbers[] = {
        "0", "1", "2", "7", "8", "11", "-1", "4294967296", "9223372036854775807"};
    constexpr std::string_view kTypes[] = {"F64", "F16", "U8", "F4", "F6_E3M2", "BOOL", "F99"};
    const auto replace_run = [&](std::string_view letters, std::string_view by) {
        std::vector<std::size_t> starts;
        for (std::size_t i = 0; i < header.size(); ++i) {
            if (letters.find(header[i]) != letters.npos &&
                (i == 0 || letters.find(header[i - 1]) == letters.npos)) {
                starts.push_back(i);
            }
        }
        const std::size_t start = starts[random.below(starts.size())];
        header.replace(start, std::min(header.find_first_not_of(letters, start), header.size()) - start, by);
    };
    switch (random.below(5)) {
        case 0:
        case 1:
            replace_run("0123456789", kNumbers[random.below(std::size(kNumbers))]);
            break;
        case 2:
            if (const auto at = header.find("F32"); at != header.npos)
                header.replace(at, 3, kTypes[random.below(7)]);
            break;
        case 3:
            header.erase(random.below(header.size()), 1 + random.below(4));
            break;
        default: {
            const std::size_t begin = random.below(header.size());
            header.insert(random.below(header.size()), header.substr(begin, random.below(60)));
        }
    }
    return header;
}

TEST_F(Hostile, BothReadersJudgeAlteredHeadersAlike) {
    RecordProperty("seed", std::to_string(seed()));
    SCOPED_TRACE("HEADWISE_TEST_SEED=" + std::to_string(seed()));
    Random random(seed() + 1);
    const int rounds = full_grid() ? 3000 : 600;
    int accepted = 0;
    for (int round = 0; round < rounds; ++round) {
        std::string header(kValidHeader);
        for (std::size_t n = 1 + random.below(2); n > 0 && !header.empty(); --n) header = perturb(header, random);
        std::string data(random.below(4) == 0 ? random.below(24) : 11, '\1');
        accepted += compare(safetensors(header, data));
        if (HasFailure()) FAIL() << "round " << round << ": " << header;
    }
    EXPECT_GT(accepted, rounds / 100);
    EXPECT_LT(accepted, rounds * 2 / 3);
    for (const Difference& difference : differences_)
        ADD_FAILURE() << difference.bytes << ": " << difference.reason;
}

}  // namespace
}  // namespace headwise
