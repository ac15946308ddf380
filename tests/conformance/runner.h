// headwise_conformance without its command line: run tests of manifests on one or all ISAs and report.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace headwise::conformance {

struct Options {
    std::vector<std::string> paths{};  // manifests or directories
    std::string isa{};                 // empty: the one in force; "all": every usable one and portable16
    int threads = 0;                   // 0: headwise's own choice
    std::string only{};                // run tests whose name contains this
    bool json = false;
    bool check_sha256 = true;
};

// Exit code: 0 all passed or skipped, 1 a failure, 2 wrong use, 3 data that cannot be read.
int run(const Options& options, std::ostream& out, std::ostream& errors);

// The same from a command line (main.cpp).
int run_command_line(int argc, const char* const* argv, std::ostream& out, std::ostream& errors);

}  // namespace headwise::conformance
