// What a layer's key/value cache holds after some tokens, and what sharing heads, a latent, a window and smaller types
// save of it: the arithmetic behind the last table of `headwise trace`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <headwise/mha_config.h>

#include "cli/json.h"

namespace headwise::cli {

struct CacheRow {
    std::string name;          // "MHA", "GQA 4:1", "latent 512 + 64", "window 4096"
    std::int64_t keys = 0;     // tokens that are kept
    std::int64_t numbers = 0;  // of a token
    std::int64_t rows = 0;     // head rows of a token, each with a scale where the type has them
};

// From multi-head attention of the same widths down to what the layer really keeps; each row adds one saving.
std::vector<CacheRow> cache_rows(const MhaConfig& config, std::int64_t context);

void print_cache_rows(const std::vector<CacheRow>& rows, std::int64_t context);
Json cache_rows_json(const std::vector<CacheRow>& rows);

}  // namespace headwise::cli
