// Both masks of torch.nn.MultiheadAttention as one Mask: what is hidden, and what is added to scores.
#pragma once

#include <array>
#include <cstdint>

#include <headwise/torch_mha.h>

namespace headwise {

struct TorchShape {
    std::int64_t N = 0, H = 0, L = 0, S = 0;
};

class TorchMasks {
public:
    // Throws invalid_argument for masks of another shape or type. `batched`: the call has a batch axis.
    TorchMasks(const TorchShape& shape, bool batched, const TorchMhaOptions& options);

    Mask mask() const;  // lives as long as this object and the masks that it was made from

private:
    // A mask as [N,H,L,S]; axes that it does not have are of size 1.
    ConstTensorView padding_as_scores(const ConstTensorView& mask, bool batched) const;
    ConstTensorView attention_as_scores(const ConstTensorView& mask, bool batched) const;
    void hide(const ConstTensorView& a, const ConstTensorView& b);
    void add(const ConstTensorView& a, const ConstTensorView& b);

    TorchShape shape_;
    Tensor keep_, sum_;
    ConstTensorView bias_;
};

}  // namespace headwise
