#include "cli/cache_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/text.h"

namespace headwise::cli {

namespace {

constexpr std::int64_t kScaleBytes = 4;

struct TypeCost {
    const char* name;
    std::int64_t bits;
    bool scaled;
};
constexpr std::array<TypeCost, 4> kTypes = {
    {{"f32", 32, false}, {"bf16", 16, false}, {"int8", 8, true}, {"int4", 4, true}}};

std::int64_t bytes_of(const CacheRow& row, const TypeCost& type) {
    const std::int64_t token = (row.numbers * type.bits + 7) / 8 + (type.scaled ? row.rows * kScaleBytes : 0);
    return row.keys * token;
}

double share_of(const CacheRow& row, const CacheRow& all) {
    const double whole = static_cast<double>(all.keys) * static_cast<double>(all.numbers);
    return whole == 0 ? 0 : static_cast<double>(row.keys) * static_cast<double>(row.numbers) / whole;
}

}  // namespace

std::vector<CacheRow> cache_rows(const MhaConfig& c, std::int64_t context) {
    const std::int64_t width = c.head_dim + c.value_dim;
    std::vector<CacheRow> rows = {{"MHA", context, c.heads * width, 2 * c.heads}};
    if (c.latent) {
        const std::int64_t kept = c.latent->kv_rank + c.latent->rope_dim;
        rows.push_back({join("latent ", c.latent->kv_rank, " + ", c.latent->rope_dim), context, kept, 1});
    } else if (c.kv_heads < c.heads) {
        const std::string name = c.kv_heads == 1 ? "MQA" : join("GQA ", c.heads / c.kv_heads, ":1");
        rows.push_back({name, context, c.kv_heads * width, 2 * c.kv_heads});
    }
    const bool bounded = c.mask.window_left >= 0 || c.mask.chunk > 0;
    if (bounded && c.mask.causal) {
        const std::int64_t window = c.mask.window_left >= 0 ? c.mask.window_left + 1 : c.mask.chunk;
        CacheRow row = rows.back();
        row.name = join(c.mask.window_left >= 0 ? "window " : "chunk ", window);
        row.keys = std::min(context, window + c.mask.keep_first);
        rows.push_back(row);
    }
    return rows;
}

void print_cache_rows(const std::vector<CacheRow>& rows, std::int64_t context) {
    std::printf("\nThe key/value cache of this layer after %s tokens; each row saves more than the one above\n\n",
                std::to_string(context).c_str());
    std::printf("  %-16s %10s %14s %8s", "", "keys kept", "numbers/token", "of MHA");
    for (const TypeCost& type : kTypes) std::printf(" %12s", type.name);
    std::printf("\n");
    for (const CacheRow& row : rows) {
        std::printf("  %-16s %10s %14s %7.1f%%", row.name.c_str(), std::to_string(row.keys).c_str(),
                    std::to_string(row.numbers).c_str(), 100 * share_of(row, rows.front()));
        for (const TypeCost& type : kTypes) std::printf(" %12s", bytes_text(bytes_of(row, type)).c_str());
        std::printf("\n");
    }
    std::printf("\n  Decoding reads all of it for every token. int8 and int4 count one f32 scale a head row.\n");
}

Json cache_rows_json(const std::vector<CacheRow>& rows) {
    Json list = Json::array();
    for (const CacheRow& row : rows) {
        Json bytes = Json::object({});
        for (const TypeCost& type : kTypes) bytes.set(type.name, bytes_of(row, type));
        list.push(Json::object({{"name", row.name},
                                {"keys", row.keys},
                                {"numbers_per_token", row.numbers},
                                {"share_of_mha", share_of(row, rows.front())},
                                {"bytes", bytes}}));
    }
    return list;
}

}  // namespace headwise::cli
