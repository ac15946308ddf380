#include "weights/gguf_layer.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/dtype.h"
#include "weights/gguf_plan.h"
#include "weights/quote.h"

namespace headwise {
namespace {

using Shape = std::vector<std::int64_t>;

// Of other stages, or copies of what the metadata says.
constexpr std::string_view kBeside[] = {"attn_norm.", "attn_norm_2.", "attn_post_norm.", "attn_rot_embd."};

std::string describe_shape(const Shape& shape) {
    std::string result = "[";
    for (const std::int64_t size : shape) result += (result.size() > 1 ? ", " : "") + std::to_string(size);
    return result + "]";
}

std::string block_name(std::int64_t layer) { return text("blk.", layer, "."); }

// Reads the tensors of one layer, and remembers which.
class LayerReader {
public:
    LayerReader(const GgufFile& file, const GgufPlan& plan, std::int64_t layer)
        : file_(file), plan_(plan), block_(block_name(layer)) {}

    LayerWeights read();

private:
    bool holds(const std::string& name) const { return file_.find(name) != nullptr; }
    Tensor take(const std::string& name, const Shape& shape);
    Tensor take_bias(std::string_view part, std::int64_t rows);
    void read_separate(LayerWeights& layer);
    void read_fused(LayerWeights& layer);
    void read_divisors(MhaConfig& config);
    void read_norms(LayerWeights& layer);
    void check_biases() const;
    void refuse_unknown() const;

    const GgufFile& file_;
    const GgufPlan& plan_;
    std::string block_;
    std::vector<std::string> used_;
};

Tensor LayerReader::take(const std::string& name, const Shape& shape) {
    const GgufEntry* const entry = file_.find(name);
    if (entry == nullptr) {
        const auto metadata = file_.metadata_text();
        const auto split = metadata.find("split.count");
        fail(ErrorCode::bad_data, file_.path(), ": tensor ", quote(name), " is missing",
             split == metadata.end() ? "" : "; the file is one of " + split->second + " of a split model");
    }
    if (entry->sizes != shape) {
        fail(ErrorCode::bad_data, file_.path(), ": tensor ", quote(name), " has the shape ",
             describe_shape(entry->sizes), ", but the metadata asks for ", describe_shape(shape));
    }
    Tensor stored = file_.load(name);
    if (!is_float(stored.dtype())) {
        fail(ErrorCode::unsupported, file_.path(), ": tensor ", quote(name), " is stored as ", entry->type->name,
             ", which is no type of weights");
    }
    used_.push_back(name);
    return stored.dtype() == DType::f64 ? convert(stored, DType::f32) : std::move(stored);
}

Tensor LayerReader::take_bias(std::string_view part, std::int64_t rows) {
    const std::string name = text(block_, part, ".bias");
    return holds(name) ? take(name, {rows}) : Tensor{};
}

void LayerReader::read_separate(LayerWeights& layer) {
    const MhaConfig& c = plan_.config;
    const auto read = [&](std::string_view part, std::int64_t rows, Tensor& weight, Tensor& bias) {
        weight = take(text(block_, part, ".weight"), {rows, c.embed_dim});
        bias = take_bias(part, rows);
    };
    read("attn_q", c.heads * c.head_dim, layer.q, layer.q_bias);
    read("attn_k", c.kv_heads * c.head_dim, layer.k, layer.k_bias);
    read("attn_v", c.kv_heads * c.value_dim, layer.v, layer.v_bias);
}

// One tensor with the rows of all q heads, all k heads, all v heads.
void LayerReader::read_fused(LayerWeights& layer) {
    const MhaConfig& c = plan_.config;
    const std::int64_t q = c.heads * c.head_dim, k = c.kv_heads * c.head_dim, v = c.kv_heads * c.value_dim;
    const auto part = [](const Tensor& fused, std::int64_t begin, std::int64_t rows) {
        return fused.empty() ? Tensor{} : convert(fused.view().slice(0, begin, rows), fused.dtype());
    };
    const Tensor weight = take(block_ + "attn_qkv.weight", {q + k + v, c.embed_dim});
    const Tensor bias = take_bias("attn_qkv", q + k + v);
    layer.q = part(weight, 0, q), layer.q_bias = part(bias, 0, q);
    layer.k = part(weight, q, k), layer.k_bias = part(bias, q, k);
    layer.v = part(weight, q + k, v), layer.v_bias = part(bias, q + k, v);
}

// What each frequency is divided by: llama3 scaling comes as one such tensor, longrope as two.
void LayerReader::read_divisors(MhaConfig& config) {
    if (!config.rope) return;
    Rope& rope = *config.rope;
    const auto divisors = [&](const std::string& name) {
        const Tensor stored = take(name, {rope.width / 2});
        std::vector<double> values(static_cast<std::size_t>(stored.count()));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = load_f64(stored.view().data, stored.dtype(), static_cast<std::int64_t>(i));
            if (!std::isfinite(values[i]) || values[i] <= 0) {
                fail(ErrorCode::bad_data, file_.path(), ": tensor ", quote(name), " holds ", values[i],
                     "; frequencies are divided by positive numbers");
            }
        }
        return values;
    };
    if (holds("rope_freqs.weight")) rope.divisors = divisors("rope_freqs.weight");
    if (holds("rope_factors_long.weight")) {
        rope.scaling.kind = RopeScaling::Kind::longrope;
        rope.scaling.long_factor = divisors("rope_factors_long.weight");
        rope.scaling.short_factor = divisors("rope_factors_short.weight");
        rope.scaling.original_max_position = plan_.original_context;
        rope.scaling.attention_factor = plan_.rope_magnitude;
    }
}

void LayerReader::read_norms(LayerWeights& layer) {
    const MhaConfig& c = plan_.config;
    if (!c.qk_norm) return;
    const bool row = c.qk_norm->extent == HeadNorm::Extent::row;
    layer.q_norm = take(block_ + "attn_q_norm.weight", {row ? c.heads * c.head_dim : c.head_dim});
    layer.k_norm = take(block_ + "attn_k_norm.weight", {row ? c.kv_heads * c.head_dim : c.head_dim});
}

// Slopes fall from 2^(-largest / n) to 2^-largest, n the largest power of two that is no more than H; the heads beyond
// take those between the first ones.
Tensor alibi_slopes(std::int64_t heads, double largest) {
    Tensor slopes(DType::f32, {heads});
    const auto n = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
    for (std::int64_t h = 0; h < heads; ++h) {
        const double step = h < n ? static_cast<double>(h + 1) : static_cast<double>(h - n) + 0.5;
        slopes.data<float>()[h] = static_cast<float>(std::exp2(-largest * step / static_cast<double>(n)));
    }
    return slopes;
}

void LayerReader::check_biases() const {
    const GgufArchitecture& row = *plan_.architecture;
    const auto need = [&](std::string_view part) {
        const std::string name = text(block_, part, ".bias");
        if (!holds(name)) fail(ErrorCode::bad_data, file_.path(), ": tensor ", quote(name), " is missing");
    };
    if (row.biases == GgufBiases::optional) return;
    if (holds(block_ + "attn_qkv.weight")) {
        need("attn_qkv");
    } else {
        for (const std::string_view part : {"attn_q", "attn_k", "attn_v"}) need(part);
    }
    if (row.biases == GgufBiases::all) need("attn_output");
}

// A tensor of the layer's attention that nobody read (a norm, a scale, a gate) would change the result.
void LayerReader::refuse_unknown() const {
    const std::string head = block_ + "attn_";
    const auto& tensors = file_.header().tensors;
    for (auto at = tensors.lower_bound(head); at != tensors.end() && at->first.starts_with(head); ++at) {
        const std::string_view rest = std::string_view(at->first).substr(block_.size());
        const bool beside = std::any_of(std::begin(kBeside), std::end(kBeside),
                                        [&](std::string_view start) { return rest.starts_with(start); });
        if (beside || std::find(used_.begin(), used_.end(), at->first) != used_.end()) continue;
        fail(ErrorCode::unsupported, file_.path(), ": tensor ", quote(at->first),
             " belongs to this attention layer, but headwise has no place for it in a ", plan_.architecture->name,
             " layer");
    }
}

LayerWeights LayerReader::read() {
    const MhaConfig& c = plan_.config;
    LayerWeights layer;
    layer.config = c;
    layer.family = plan_.architecture->name;
    check_biases();
    if (holds(block_ + "attn_qkv.weight")) {
        read_fused(layer);
    } else {
        read_separate(layer);
    }
    layer.o = take(block_ + "attn_output.weight", {c.embed_dim, c.heads * c.value_dim});
    layer.o_bias = take_bias("attn_output", c.embed_dim);
    read_norms(layer);
    read_divisors(layer.config);
    if (plan_.alibi > 0) layer.alibi_slopes = alibi_slopes(c.heads, plan_.alibi);
    refuse_unknown();
    layer.tensors = std::move(used_);
    return layer;
}

// Whether the weights of a layer are there, whatever the architecture makes of them.
bool is_stored(const GgufFile& file, std::int64_t layer) {
    const std::string block = block_name(layer);
    const auto holds = [&](std::string_view part) { return file.find(text(block, part, ".weight")) != nullptr; };
    return holds("attn_output") && (holds("attn_qkv") || (holds("attn_q") && holds("attn_k") && holds("attn_v")));
}

}  // namespace

bool is_gguf_file(const std::string& path) {
    return path_exists(path) && !is_directory(path) && is_gguf(InputFile(path));
}

LayerWeights load_gguf_layer(const std::string& path, const LayerOptions& options) {
    const GgufFile file(InputFile(path), options.limits);
    const GgufPlan plan = plan_gguf(file, options.layer, options.causal);
    LayerWeights layer = LayerReader(file, plan, options.layer).read();
    layer.config.dtype = options.dtype.value_or(DType::f32);
    return layer;
}

std::vector<std::int64_t> stored_gguf_layers(const std::string& path, const FileLimits& limits) {
    const GgufFile file(InputFile(path), limits);
    const GgufPlan plan = plan_gguf(file, 0, std::nullopt);
    constexpr std::string_view kHead = "blk.", kTail = ".attn_output.weight";
    std::set<std::int64_t> layers;
    const auto& tensors = file.header().tensors;
    for (auto at = tensors.lower_bound(std::string(kHead)); at != tensors.end() && at->first.starts_with(kHead);
         ++at) {
        const std::string& name = at->first;
        std::int64_t layer = -1;
        const auto [rest, error] = std::from_chars(name.data() + kHead.size(), name.data() + name.size(), layer);
        const std::string_view tail(rest, static_cast<std::size_t>(name.data() + name.size() - rest));
        if (error != std::errc() || layer < 0 || layer >= plan.layers || tail != kTail) continue;
        if (is_stored(file, layer)) layers.insert(layer);
    }
    return {layers.begin(), layers.end()};
}

}  // namespace headwise
