#include <headwise/torch_mha.h>

#include <set>

#include "adapters/torch_masks.h"
#include "core/check.h"
#include "core/dtype.h"

namespace headwise {
namespace {

using StateDict = std::map<std::string, ConstTensorView>;
constexpr const char* kWhere = "TorchMultiheadAttention";

const TorchMhaConfig& checked(const TorchMhaConfig& c) {
    check(c.embed_dim > 0 && c.num_heads > 0 && c.embed_dim % c.num_heads == 0, kWhere,
          ": embed_dim = ", c.embed_dim, " must be a positive multiple of num_heads = ", c.num_heads);
    return c;
}

MhaConfig block_config(const TorchMhaConfig& c) {
    return {.embed_dim = c.embed_dim,
            .heads = c.num_heads,
            .key_embed_dim = c.kdim,
            .value_embed_dim = c.vdim,
            .zero_key = c.add_zero_attn,
            .dtype = c.dtype};
}

// Takes the tensors that the arguments ask for, then refuses what is left.
class Reader {
public:
    explicit Reader(const StateDict& tensors) : tensors_(tensors) {}

    ConstTensorView take(const char* name, std::initializer_list<std::int64_t> shape) {
        const auto found = tensors_.find(name);
        check(found != tensors_.end(), kWhere, ": the state_dict has no ", name,
              ", which these constructor arguments ask for");
        known_.insert(name);
        const ConstTensorView& view = found->second;
        bool fits = view.rank == static_cast<int>(shape.size());
        for (int axis = 0; fits && axis < view.rank; ++axis) fits = view.size(axis) == shape.begin()[axis];
        check(fits, kWhere, ": ", name, " is ", view, ", expected ", ConstTensorView(nullptr, DType::f32, shape));
        return view;
    }

    void finish() const {
        for (const auto& [name, view] : tensors_) {
            check(known_.contains(name), kWhere, ": the state_dict has ", name, ", ", view,
                  ", which these constructor arguments do not ask for");
        }
    }

private:
    const StateDict& tensors_;
    std::set<std::string> known_;
};

MhaWeights block_weights(const TorchMhaConfig& c, const StateDict& tensors) {
    const std::int64_t E = c.embed_dim, kdim = c.kdim == 0 ? E : c.kdim, vdim = c.vdim == 0 ? E : c.vdim;
    Reader reader(tensors);
    MhaWeights w;
    if (kdim == E && vdim == E) {
        const ConstTensorView packed = reader.take("in_proj_weight", {3 * E, E});
        w.q = packed.slice(0, 0, E), w.k = packed.slice(0, E, E), w.v = packed.slice(0, 2 * E, E);
    } else {
        w.q = reader.take("q_proj_weight", {E, E});
        w.k = reader.take("k_proj_weight", {E, kdim});
        w.v = reader.take("v_proj_weight", {E, vdim});
    }
    w.o = reader.take("out_proj.weight", {E, E});
    if (c.bias) {
        const ConstTensorView packed = reader.take("in_proj_bias", {3 * E});
        w.q_bias = packed.slice(0, 0, E), w.k_bias = packed.slice(0, E, E), w.v_bias = packed.slice(0, 2 * E, E);
        w.o_bias = reader.take("out_proj.bias", {E});
    }
    const auto row = [](const ConstTensorView& view) {
        return ConstTensorView(view.data, view.dtype, {view.size(2)}, {view.stride(2)});
    };
    if (c.add_bias_kv) {
        w.extra_key = row(reader.take("bias_k", {1, 1, E}));
        w.extra_value = row(reader.take("bias_v", {1, 1, E}));
    }
    reader.finish();
    return w;
}

bool same_view(const ConstTensorView& a, const ConstTensorView& b) {
    return a.data == b.data && a.dtype == b.dtype && a.rank == b.rank && a.sizes == b.sizes &&
           a.strides == b.strides;
}

// [N,tokens,width] of any of torch's layouts.
template <class Data>
BasicView<Data> batched(const BasicView<Data>& view, bool batch_first) {
    if (view.rank == 2) return view.split_axis(0, 1, view.size(0));
    return batch_first ? view : view.swap_axes(0, 1);
}

// [N,H,L,S'] -> [N,L,S'], the mean over the heads.
Tensor average_heads(const Tensor& weights) {
    const std::int64_t N = weights.size(0), H = weights.size(1), rows = weights.size(2) * weights.size(3);
    Tensor mean(DType::f32, {N, weights.size(2), weights.size(3)});
    for (std::int64_t n = 0; n < N; ++n)
        for (std::int64_t i = 0; i < rows; ++i) {
            double sum = 0;
            for (std::int64_t h = 0; h < H; ++h) sum += weights.data<float>()[(n * H + h) * rows + i];
            mean.data<float>()[n * rows + i] = static_cast<float>(sum / static_cast<double>(H));
        }
    return mean;
}

// Without the batch axis, for unbatched input.
Tensor first_batch(const Tensor& tensor) {
    return convert(
        tensor.view().rank == 4
            ? ConstTensorView(tensor.view().data, DType::f32, {tensor.size(1), tensor.size(2), tensor.size(3)})
            : ConstTensorView(tensor.view().data, DType::f32, {tensor.size(1), tensor.size(2)}),
        DType::f32);
}

}  // namespace

TorchMultiheadAttention::TorchMultiheadAttention(const TorchMhaConfig& config, const StateDict& state_dict)
    : config_(checked(config)), block_(block_config(config), block_weights(config, state_dict)) {}

TorchMultiheadAttention::Result TorchMultiheadAttention::forward(const ConstTensorView& query,
                                                                 const ConstTensorView& key,
                                                                 const ConstTensorView& value,
                                                                 const TorchMhaOptions& options) const {
    check((query.rank == 2 || query.rank == 3) && key.rank == query.rank && value.rank == query.rank, kWhere,
          ": query is ", query, ", key ", key, " and value ", value,
          "; all three must have 3 axes, or 2 without a batch");
    const ConstTensorView x = batched(query, config_.batch_first), k = batched(key, config_.batch_first),
                          v = batched(value, config_.batch_first);
    const TorchMasks masks({.N = x.size(0), .H = config_.num_heads, .L = x.size(1), .S = k.size(1)},
                           query.rank == 3, options);
    Result result;
    const std::int64_t E = config_.embed_dim;
    result.output = query.rank == 2 ? Tensor(config_.dtype, {query.size(0), E})
                                    : Tensor(config_.dtype, {query.size(0), query.size(1), E});
    ForwardOptions call{.mask = masks.mask(), .execution = options.execution};
    if (options.is_causal && options.attn_mask.empty()) {
        call.mask = call.mask & causal();
        call.positions = Positions::top_left();
    }
    // Only what is another tensor than the query is projected in a pass of its own.
    if (!same_view(query, key) || !same_view(query, value)) {
        call.key = k;
        if (!same_view(key, value)) call.value = v;
    }
    Tensor weights;
    if (options.need_weights) {
        const std::int64_t keys = k.size(1) + (config_.add_bias_kv ? 1 : 0) + (config_.add_zero_attn ? 1 : 0);
        weights = Tensor(DType::f32, {x.size(0), config_.num_heads, x.size(1), keys});
        call.scores_to = weights;
    }
    block_.forward(x, batched(result.output.view(), config_.batch_first), call);
    if (!options.need_weights) return result;
    result.weights = options.average_attn_weights ? average_heads(weights) : std::move(weights);
    if (query.rank == 2) result.weights = first_batch(result.weights);
    return result;
}

}  // namespace headwise
