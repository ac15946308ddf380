// What `headwise run` knows of one layer when it has run, and how it tells it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <headwise/weights.h>

#include "cli/commands.h"
#include "cli/compare.h"
#include "cli/json.h"
#include "cli/passes.h"

namespace headwise::cli {

struct RunResult {
    std::string family;
    std::vector<std::string> tensors;  // of the checkpoint
    MhaConfig config;                  // resolved
    Tensor x, key, lengths, positions, y, expected, scores;
    PassTimes first, best;
    std::optional<Comparison> check;
};

// `options` are those of this layer: its number, and file names with the number in place.
Json run_json(const RunOptions& options, const RunResult& result);
void print_run(const RunOptions& options, const RunResult& result);

}  // namespace headwise::cli
