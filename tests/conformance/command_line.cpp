#include <charconv>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "conformance/runner.h"

namespace headwise::conformance {

namespace {

constexpr std::string_view kHelp = R"(Judges headwise by conformance vectors: one line per test, then the counts.

Usage: headwise_conformance MANIFEST_OR_DIR... [options]

A directory is searched for manifest.json, also one level down.
  --isa NAME    instruction set to run on; all: every one that this machine can run, and portable16
  --threads N   number of threads, 1 to 4096
  --only TEXT   run only tests whose name contains TEXT
  --json        one JSON object per test, then one with the counts
  --no-sha      do not check the sha256 of the files
  --help        this text

Exit code: 0 nothing failed, 1 a test failed, 2 wrong use, 3 data that cannot be read.
Example: headwise_conformance tests/vectors --isa avx2 --threads 2 --only causal
)";

struct WrongUse : std::runtime_error {
    using std::runtime_error::runtime_error;
};

int read_threads(const std::string& words) {
    int count = 0;
    const char* end = words.data() + words.size();
    const auto [stop, error] = std::from_chars(words.data(), end, count);
    if (error != std::errc{} || stop != end || count < 1 || count > 4096) {
        throw WrongUse("--threads: \"" + words + "\" is not a number from 1 to 4096");
    }
    return count;
}

// Takes arguments from the front; "--name=value" and "--name value" are the same.
Options parse(int argc, const char* const* argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        std::string name = argv[i], value;
        if (!name.starts_with("--")) {
            options.paths.push_back(name);
            continue;
        }
        const std::size_t equals = name.find('=');
        const bool takes_value = [&] {
            const std::string_view bare = std::string_view(name).substr(0, equals);
            return bare == "--isa" || bare == "--threads" || bare == "--only";
        }();
        if (takes_value && equals != std::string::npos) {
            value = name.substr(equals + 1);
            name.resize(equals);
        } else if (takes_value) {
            if (++i == argc) throw WrongUse(name + " needs a value");
            value = argv[i];
        }
        if (name == "--isa") {
            options.isa = value;
        } else if (name == "--threads") {
            options.threads = read_threads(value);
        } else if (name == "--only") {
            options.only = value;
        } else if (name == "--json") {
            options.json = true;
        } else if (name == "--no-sha") {
            options.check_sha256 = false;
        } else {
            throw WrongUse("unknown option " + name);
        }
    }
    if (options.paths.empty()) throw WrongUse("no manifest or directory is named");
    return options;
}

}  // namespace

int run_command_line(int argc, const char* const* argv, std::ostream& out, std::ostream& errors) {
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) == "--help") {
            out << kHelp;
            return 0;
        }
    }
    try {
        return run(parse(argc, argv), out, errors);
    } catch (const WrongUse& error) {
        errors << "headwise_conformance: " << error.what() << "; --help lists the options\n";
        return 2;
    }
}

}  // namespace headwise::conformance
