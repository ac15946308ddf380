#include "cli/variants.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <utility>

#include <headwise/error.h>

#include "cli/text.h"

namespace headwise::cli {

namespace {

// A divisor of `heads` strictly between 1 and heads, closest to a quarter of the heads; 1 if there is none.
std::int64_t middle_group(std::int64_t heads) {
    std::int64_t best = 1;
    const auto distance = [&](std::int64_t g) { return g * 4 > heads ? g * 4 - heads : heads - g * 4; };
    for (std::int64_t g = 2; g < heads; ++g) {
        if (heads % g == 0 && (best == 1 || distance(g) < distance(best))) best = g;
    }
    return best;
}

std::string sharing_text(std::int64_t heads, std::int64_t kv_heads) {
    constexpr std::int64_t kShown = 4;
    const std::int64_t group = heads / kv_heads;
    if (group == 1) return "nobody shares";
    std::string text;
    for (std::int64_t g = 0; g < std::min(kv_heads, kShown); ++g) {
        text += join(g == 0 ? "" : " | ", g * group, "-", g * group + group - 1);
    }
    return kv_heads > kShown ? text + " | ..." : text;
}

std::int64_t parameters_of(const MhaConfig& c, const Biases& biases) {
    const std::array rows = {c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.value_dim, c.out_dim};
    const std::array columns = {c.embed_dim, c.key_embed_dim, c.value_embed_dim, c.heads * c.value_dim};
    std::int64_t parameters = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) parameters += rows[i] * (columns[i] + (biases[i] ? 1 : 0));
    return parameters;
}

Variant make_variant(const MhaConfig& traced, const Biases& biases, std::int64_t heads, std::int64_t kv_heads) {
    const std::int64_t width = traced.heads * traced.head_dim, value_width = traced.heads * traced.value_dim;
    if (width % heads != 0 || value_width % heads != 0) {
        throw Error(ErrorCode::invalid_argument,
                    join("--heads ", heads, " does not divide the width of all heads together, ", width));
    }
    MhaConfig config = traced;
    config.heads = heads, config.kv_heads = kv_heads;
    config.head_dim = width / heads, config.value_dim = value_width / heads;
    config = resolve(config);
    return {.name = kv_heads == heads ? "MHA"
                    : kv_heads == 1   ? "MQA"
                                      : "GQA",
            .config = config,
            .traced = heads == traced.heads && kv_heads == traced.kv_heads,
            .parameters = parameters_of(config, biases),
            .kv_bytes_per_token =
                kv_heads * (config.head_dim + config.value_dim) * static_cast<std::int64_t>(size_of(config.dtype)),
            .sharing = sharing_text(heads, kv_heads)};
}

// K and V of N tokens: 2*N*G*D numbers where Dv = D.
std::int64_t cache_numbers(const MhaConfig& config, std::int64_t tokens) {
    return tokens * config.kv_heads * (config.head_dim + config.value_dim);
}

}  // namespace

bool has_variants(const MhaConfig& config) {
    return !config.latent && !config.routing && !config.difference && !config.qk_norm && !config.merged_norm &&
           config.gate == Gate::none;
}

std::vector<Variant> variants_of(const MhaConfig& traced, const Biases& biases,
                                 std::span<const std::int64_t> heads, std::span<const std::int64_t> kv_heads) {
    std::vector<std::int64_t> head_counts(heads.begin(), heads.end());
    if (std::ranges::find(head_counts, traced.heads) == head_counts.end()) {
        head_counts.insert(head_counts.begin(), traced.heads);
    }
    std::vector<Variant> variants;
    for (const std::int64_t count : head_counts) {
        std::vector<std::int64_t> groups(kv_heads.begin(), kv_heads.end());
        groups.insert(groups.end(), {count, 1});
        if (count == traced.heads) groups.push_back(traced.kv_heads);
        if (kv_heads.empty() && (traced.kv_heads == count || traced.kv_heads == 1 || count != traced.heads)) {
            groups.push_back(middle_group(count));
        }
        std::ranges::sort(groups, std::greater());
        groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
        for (const std::int64_t group : groups) variants.push_back(make_variant(traced, biases, count, group));
    }
    return variants;
}

void print_variants(std::span<const Variant> variants, std::int64_t tokens) {
    std::printf("\nFrom MHA to GQA to MQA (* = traced above; N = %s tokens)\n\n", std::to_string(tokens).c_str());
    std::printf("  %-5s %5s %5s %5s %12s %14s %16s  %s\n", "", "H", "G", "D", "parameters", "K,V per token",
                "cache 2*N*G*D", "query heads by kv head");
    for (const Variant& variant : variants) {
        const MhaConfig& config = variant.config;
        const auto cell = [](std::int64_t value, std::size_t width) {
            return pad_left(std::to_string(value), width);
        };
        std::printf("%s %-5s %s %s %s %s %s %s  %s\n", variant.traced ? "*" : " ", variant.name.c_str(),
                    cell(config.heads, 5).c_str(), cell(config.kv_heads, 5).c_str(),
                    cell(config.head_dim, 5).c_str(), cell(variant.parameters, 12).c_str(),
                    cell(variant.kv_bytes_per_token, 12).append(" B").c_str(),
                    cell(cache_numbers(config, tokens), 16).c_str(), variant.sharing.c_str());
    }
    std::printf(
        "\n  Fewer kv heads: the query heads of a group read the same keys and values, so W_K, W_V, the\n"
        "  bytes per token and the cache shrink by H/G. Queries, W_O and the number of softmaxes stay.\n");
}

Json variants_json(std::span<const Variant> variants, std::int64_t tokens) {
    Json list = Json::array();
    for (const Variant& variant : variants) {
        const MhaConfig& config = variant.config;
        list.push(Json::object({{"name", variant.name},
                                {"traced", variant.traced},
                                {"heads", config.heads},
                                {"kv_heads", config.kv_heads},
                                {"head_dim", config.head_dim},
                                {"parameters", variant.parameters},
                                {"kv_bytes_per_token", variant.kv_bytes_per_token},
                                {"kv_cache_tokens", tokens},
                                {"kv_cache_numbers", cache_numbers(config, tokens)},
                                {"query_heads_per_kv_head", config.heads / config.kv_heads}}));
    }
    return list;
}

}  // namespace headwise::cli
