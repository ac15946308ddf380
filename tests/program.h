// Running the built `headwise` as a user does, for cli_test and cli_data_test.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace headwise::test {

struct Answer {
    int code = -1;
    std::string out{}, err{};
};

// A folder that lives as long as the test.
class Scratch {
public:
    Scratch() {
        std::string pattern = (std::filesystem::temp_directory_path() / "headwise-cli-XXXXXX").string();
        if (mkdtemp(pattern.data()) == nullptr) std::abort();
        path_ = pattern;
    }
    ~Scratch() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    std::string file(const std::string& name) const { return (path_ / name).string(); }
    std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream(file(name), std::ios::binary) << bytes;
        return file(name);
    }
    std::size_t entries() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
    }

private:
    std::filesystem::path path_;
};

inline std::string slurp(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// Runs `headwise arguments...`; `settings` ("NAME=value") come before the environment. Standard output goes to
// `out_path` if given.
inline Answer headwise_program(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& settings = {}, const std::string& out_path = {}) {
    const Scratch scratch;
    const std::string out = out_path.empty() ? scratch.file("out") : out_path, err = scratch.file("err");
    std::vector<std::string> words = {HEADWISE_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<std::string> variables = settings;
    for (char** entry = environ; *entry != nullptr; ++entry) variables.emplace_back(*entry);
    std::vector<char*> argv, envp;
    for (std::string& word : words) argv.push_back(word.data());
    for (std::string& variable : variables) envp.push_back(variable.data());
    argv.push_back(nullptr), envp.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t child = 0;
    int status = 0;
    const int failed = posix_spawn(&child, HEADWISE_PROGRAM, &actions, nullptr, argv.data(), envp.data());
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0 || waitpid(child, &status, 0) != child) return {.err = "cannot start " HEADWISE_PROGRAM};
    return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            .out = out_path.empty() ? slurp(out) : "",
            .err = slurp(err)};
}

// A refusal: this exit code, one sentence on standard error that contains `words`, and silence on standard output.
inline void expect_refused(const Answer& answer, int code, const std::string& words) {
    EXPECT_EQ(answer.code, code) << answer.err;
    EXPECT_EQ(answer.out, "");
    EXPECT_NE(answer.err.find(words), std::string::npos) << "wanted \"" << words << "\" in: " << answer.err;
    EXPECT_EQ(std::count(answer.err.begin(), answer.err.end(), '\n'), 1) << answer.err;
    EXPECT_TRUE(answer.err.starts_with("headwise")) << answer.err;
}

}  // namespace headwise::test
