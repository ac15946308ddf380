// The class in front of the stages.
#include <headwise/mha.h>

#include "mha/impl.h"
#include "mha/stages.h"

namespace headwise {

MultiHeadAttention::MultiHeadAttention(const MhaConfig& config, const MhaWeights& weights)
    : impl_(std::make_unique<Impl>(config, weights)) {}
MultiHeadAttention::~MultiHeadAttention() = default;
MultiHeadAttention::MultiHeadAttention(MultiHeadAttention&&) noexcept = default;
MultiHeadAttention& MultiHeadAttention::operator=(MultiHeadAttention&&) noexcept = default;

const MhaConfig& MultiHeadAttention::config() const noexcept { return impl_->config; }
std::int64_t MultiHeadAttention::weight_bytes() const noexcept { return impl_->weight_bytes(); }

void MultiHeadAttention::forward(const ConstTensorView& x, const TensorView& y,
                                 const ForwardOptions& options) const {
    run_block(*impl_, x, y, options);
}

Tensor MultiHeadAttention::forward(const ConstTensorView& x, const ForwardOptions& options) const {
    check_rows(x, "x", impl_->config.embed_dim);
    Tensor y = x.rank == 2 ? Tensor(impl_->config.dtype, {x.size(0), impl_->config.out_dim})
                           : Tensor(impl_->config.dtype, {x.size(0), x.size(1), impl_->config.out_dim});
    run_block(*impl_, x, y, options);
    return y;
}

}  // namespace headwise
