// RotaryEmbedding and RMSNormalization: a copy from x to y, then stage 2 in place.
#include <cmath>
#include <cstring>

#include <headwise/heads.h>

#include "adapters/onnx_checks.h"
#include "core/check_memory.h"
#include "core/dtype.h"
#include "core/storage.h"
#include "heads/check.h"

namespace headwise::onnx {
namespace {

void check_pair(const ConstTensorView& x, const TensorView& y, const char* where) {
    check(!x.empty() && (x.dtype == DType::f32 || x.dtype == DType::bf16 || x.dtype == DType::f16), where,
          ": X is ", x, ", expected f32, bf16 or f16");
    check(y.rank == x.rank && y.dtype == x.dtype && y.sizes == x.sizes, where, ": Y is ", y, ", expected ",
          x.dtype, " and the sizes of X, which is ", x);
    check_memory(x, where, "X");
    check_writable(y, where, "Y");
}

// Row by row of the last axis, which may have any stride in x. y may be x itself.
void copy(const ConstTensorView& x, const TensorView& y) {
    if (x.count() == 0 || (x.data == y.data && x.strides == y.strides)) return;
    const auto element = static_cast<std::int64_t>(size_of(x.dtype));
    const int last = x.rank - 1;
    const std::int64_t width = x.size(last);
    const bool whole = (x.stride(last) == 1 && y.stride(last) == 1) || width == 1;
    for (std::int64_t row = 0; row < x.count() / width; ++row) {
        std::int64_t from = 0, to = 0, rest = row;
        for (int axis = last - 1; axis >= 0; --axis) {
            from += rest % x.size(axis) * x.stride(axis);
            to += rest % x.size(axis) * y.stride(axis);
            rest /= x.size(axis);
        }
        const auto* source = static_cast<const std::byte*>(x.data) + from * element;
        auto* target = static_cast<std::byte*>(y.data) + to * element;
        for (std::int64_t i = 0; i < (whole ? 1 : width); ++i) {
            std::memcpy(target + i * y.stride(last) * element, source + i * x.stride(last) * element,
                        static_cast<std::size_t>(whole ? width * element : element));
        }
    }
}

}  // namespace

void rotary_embedding(const ConstTensorView& x, const ConstTensorView& cos_cache, const ConstTensorView& sin_cache,
                      const ConstTensorView& position_ids, const TensorView& y, const RotaryAttributes& attributes,
                      const Execution& execution) {
    constexpr const char* kWhere = "onnx::rotary_embedding";
    check_pair(x, y, kWhere);
    const TensorView heads = by_token(y, attributes.num_heads, kWhere, "X", "num_heads");
    const std::int64_t R = attributes.rotary_embedding_dim == 0 ? heads.size(3) : attributes.rotary_embedding_dim;
    const Rope rope{.pairs = attributes.interleaved ? Rope::Pairs::interleaved : Rope::Pairs::half_split,
                    .width = R};
    const RopeLayout layout = rope_layout(rope, heads.size(3), kWhere);
    check_rope_tables({cos_cache, sin_cache}, heads, layout, position_ids, kWhere);
    copy(x, y);
    rotate(heads, rope, RopeTables{cos_cache, sin_cache}, position_ids, execution);
}

namespace {

constexpr const char* kRms = "onnx::rms_normalization";

// scale[...] of element `index` (row-major) of `sizes`, with which it is aligned from the right.
double broadcast_at(const ConstTensorView& scale, const ConstTensorView& x, std::int64_t index) {
    std::int64_t at = 0;
    for (int axis = x.rank - 1, own = scale.rank - 1; own >= 0; --axis, --own) {
        if (scale.size(own) != 1) at += index % x.size(axis) * scale.stride(own);
        index /= x.size(axis);
    }
    return load_f64(scale.data, scale.dtype, at);
}

// True if one row of the scale serves every group of normalized numbers.
bool is_shared(const ConstTensorView& scale, const ConstTensorView& x, int axis) {
    for (int own = 0; own < scale.rank - (x.rank - axis); ++own) {
        if (scale.size(own) != 1) return false;
    }
    return true;
}

void check_scale(const ConstTensorView& scale, const ConstTensorView& x) {
    bool fits = !scale.empty() && is_float(scale.dtype) && scale.rank <= x.rank;
    for (int own = 0; fits && own < scale.rank; ++own) {
        fits = scale.size(own) == 1 || scale.size(own) == x.size(x.rank - scale.rank + own);
    }
    check(fits, kRms, ": scale is ", scale, ", which is no float tensor that broadcasts to X, ", x);
    check_memory(scale, kRms, "scale");
}

}  // namespace

void rms_normalization(const ConstTensorView& x, const ConstTensorView& scale, const TensorView& y,
                       const RmsAttributes& attributes, const Execution& execution) {
    check_pair(x, y, kRms);
    check(x.rank >= 1 && attributes.axis >= -x.rank && attributes.axis < x.rank, kRms, ": axis is ",
          attributes.axis, ", but X is ", x);
    check(y.is_dense(), kRms, ": Y is ", y, ", expected dense memory in row-major order");
    check_scale(scale, x);
    const int axis = attributes.axis < 0 ? attributes.axis + x.rank : attributes.axis;
    const HeadNorm norm{.eps = attributes.epsilon};
    check(std::isfinite(norm.eps) && norm.eps >= 0, kRms, ": epsilon is ", norm.eps,
          ", expected a finite number of at least 0");
    std::int64_t groups = 1, width = 1;
    for (int i = 0; i < x.rank; ++i) (i < axis ? groups : width) *= x.size(i);
    if (groups == 0 || width == 0) return;

    const Scratch memory(static_cast<std::size_t>(width) * sizeof(float));
    auto* weight = memory.data<float>();
    const auto fill_weight = [&](std::int64_t group) {
        for (std::int64_t i = 0; i < width; ++i) {
            weight[i] = static_cast<float>(broadcast_at(scale, x, group * width + i));
        }
    };
    copy(x, y);
    const TensorView rows(y.data, y.dtype, {1, groups, 1, width});
    const ConstTensorView weights(weight, DType::f32, {width});
    const std::int64_t step = is_shared(scale, x, axis) ? groups : 1;  // groups that one row of weights serves
    for (std::int64_t group = 0; group < groups; group += step) {
        fill_weight(group);
        normalize(rows.slice(1, group, step), norm, weights, {}, execution);
    }
}

}  // namespace headwise::onnx
