#include "cli/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

namespace headwise::cli {

namespace {

constexpr auto kPatience = std::chrono::milliseconds(500);  // shorter work needs no bar
constexpr auto kRedraw = std::chrono::milliseconds(80);
constexpr int kWidth = 30;

}  // namespace

Progress::Progress(std::string label, std::int64_t total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
    if (drawn_) std::fputs("\r\033[K", stderr);
}

void Progress::step(std::string label) {
    ++done_;
    if (!label.empty()) label_ = std::move(label);
    if (!terminal_ || total_ <= 0) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - start_ < kPatience || now - last_ < kRedraw) return;
    last_ = now;
    drawn_ = true;
    const int filled = static_cast<int>(kWidth * done_ / total_);
    std::fprintf(stderr, "\r\033[K%s [%s%s] %lld/%lld", label_.c_str(),
                 std::string(static_cast<std::size_t>(filled), '#').c_str(),
                 std::string(static_cast<std::size_t>(kWidth - filled), '.').c_str(),
                 static_cast<long long>(done_), static_cast<long long>(total_));
    std::fflush(stderr);
}

}  // namespace headwise::cli
