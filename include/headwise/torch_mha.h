// torch.nn.MultiheadAttention on top of MultiHeadAttention: its state_dict names, layouts, mask polarities and results.
// docs/semantics.md has the table of its flags. Gradients and dropout belong to training and are not here.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/mha.h>
#include <headwise/tensor.h>

namespace headwise {

// The constructor's arguments. 0 in kdim or vdim: embed_dim.
struct TorchMhaConfig {
    std::int64_t embed_dim = 0, num_heads = 0;
    bool bias = true, add_bias_kv = false, add_zero_attn = false;
    std::int64_t kdim = 0, vdim = 0;
    bool batch_first = false;
    DType dtype = DType::f32;  // see MhaConfig
};

// The arguments of a call, besides query, key and value. N batch, L query tokens, S key tokens.
struct TorchMhaOptions {
    ConstTensorView key_padding_mask{};  // [N,S] or [S]: bool, true = ignored; or float, added to the scores
    ConstTensorView attn_mask{};  // [L,S] or [N*H,L,S], index n*H + h: bool, true = not allowed; or float, added
    bool is_causal = false;       // beside a mask a hint, which is ignored; without one, query i sees keys <= i
    bool need_weights = false;
    bool average_attn_weights = true;
    Execution execution{};
};

class HEADWISE_API TorchMultiheadAttention {
public:
    // `state_dict`: in_proj_weight (or q_proj_weight, k_proj_weight, v_proj_weight where kdim or vdim is another width),
    // in_proj_bias, bias_k, bias_v, out_proj.weight, out_proj.bias; only read here. Throws invalid_argument for names that
    // are missing, that the arguments do not ask for, or of another shape.
    TorchMultiheadAttention(const TorchMhaConfig& config,
                            const std::map<std::string, ConstTensorView>& state_dict);

    struct Result {
        Tensor output;  // the layout of query, width embed_dim
        Tensor
            weights;  // if asked for: [N,L,S'] averaged or [N,H,L,S'], without N for unbatched input. S' counts the
                      // bias_kv key and the zero key, in this order, which no mask hides
    };
    // query [N,L,E] with batch_first, else [L,N,E]; or unbatched [L,E]. key and value alike with S tokens. A row that sees
    // no key gives out_proj.bias and weights of 0, where torch, depending on the path that it takes, gives NaN.
    Result forward(const ConstTensorView& query, const ConstTensorView& key, const ConstTensorView& value,
                   const TorchMhaOptions& options = {}) const;

    const MultiHeadAttention& block() const noexcept { return block_; }

private:
    TorchMhaConfig config_;
    MultiHeadAttention block_;
};

}  // namespace headwise
