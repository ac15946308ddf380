// Tiny files for tests: written byte by byte, so that no reader is judged by our own writer.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <headwise/error.h>

namespace headwise::testing_support {

// A directory of its own, removed at the end; in memory where possible, because disks take their time to truncate and
// sync thousands of files.
class TempDir {
public:
    TempDir() {
        std::error_code ignored;
        const bool in_memory =
            std::filesystem::is_directory("/dev/shm", ignored) && ::access("/dev/shm", W_OK) == 0;
        const auto parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
        std::string pattern = (parent / "headwise-test-XXXXXX").string();
        if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
        path_ = pattern;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;

    std::string operator/(const std::string& name) const { return path_ + "/" + name; }
    const std::string& path() const { return path_; }
    std::vector<std::string> list() const {
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(path_))
            names.push_back(entry.path().filename());
        return names;
    }

private:
    std::string path_;
};

inline void put_file(const std::string& path, std::string_view bytes) {
    std::ofstream stream(path, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!stream.flush()) throw std::runtime_error("cannot write " + path);
}

inline std::string get_file(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// `value` in `bytes` little-endian bytes.
inline std::string little(std::uint64_t value, int bytes = 8) {
    std::string result;
    for (int i = 0; i < bytes; ++i) result += static_cast<char>(value >> (8 * i) & 255);
    return result;
}

inline std::string safetensors(std::string_view header, std::string_view data) {
    return little(header.size()) + std::string(header) + std::string(data);
}

// Passes if `call` throws an Error of this code whose message holds every one of `parts`.
template <class Call>
void expect_error(ErrorCode code, std::initializer_list<std::string_view> parts, Call call) {
    try {
        call();
    } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(describe(error.code()), std::string(describe(code))) << message;
        for (const std::string_view part : parts) {
            EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
        }
        return;
    }
    ADD_FAILURE() << "no Error; expected " << describe(code);
}

}  // namespace headwise::testing_support
