// A progress bar on standard error: only on a terminal, and only once a command has run for a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace headwise::cli {

class Progress {
public:
    Progress(std::string label, std::int64_t total);
    ~Progress();  // clears the bar
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void step(std::string label = {});  // one more of `total` is done; what comes next, if that changes

private:
    std::string label_;
    std::int64_t total_;
    std::int64_t done_ = 0;
    bool terminal_;
    bool drawn_ = false;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point last_ = start_;
};

}  // namespace headwise::cli
