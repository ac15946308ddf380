#include "project/packed_linear.h"

#include <algorithm>

#include "core/check.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "kernels/storage_of.h"
#include "project/linear_plan.h"

namespace headwise {
namespace {

constexpr std::int64_t kLine = 64;                             // bytes
constexpr std::int64_t kMostFeatures = std::int64_t{1} << 48;  // a band without columns may have any K

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t signed_size_of(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

void check_band(const LinearBand& band, std::size_t index, std::int64_t in_features) {
    const ConstTensorView &weight = band.weight, &bias = band.bias;
    check(weight.rank == 2 && has_storage(weight.dtype), "linear: weight of band ", index, " is ",
          weight.describe(), "; expected f32, bf16 or f16 [out_features, in_features]");
    check(weight.size(1) == in_features, "linear: weight of band ", index, " is ", weight.describe(),
          "; expected in_features = ", in_features, " as in band 0");
    check(bias.empty() || (bias.rank == 1 && is_float(bias.dtype) && bias.size(0) == weight.size(0)),
          "linear: bias of band ", index, " is ", bias.describe(), "; expected float [", weight.size(0), "]");
}

// columns [first, first + count) of y, that is rows of the weight, as f32 [count][K].
void widen_rows(const KernelTable& table, const ConstTensorView& weight, std::int64_t first, std::int64_t count,
                float* to) {
    const std::int64_t k = weight.size(1), row_stride = weight.stride(0), stride = weight.stride(1);
    if (stride == 1) {
        const auto* from = static_cast<const std::byte*>(weight.data);
        for (std::int64_t row = 0; row < count; ++row) {
            table.rows.widen(to + row * k, from + (first + row) * row_stride * signed_size_of(weight.dtype),
                             storage_of(weight.dtype), k);
        }
        return;
    }
    // Conv1D layout: neighbouring columns of y lie side by side.
    for (std::int64_t i = 0; i < k; ++i) {
        for (std::int64_t row = 0; row < count; ++row) {
            const std::int64_t at = (first + row) * row_stride + i * stride;
            to[row * k + i] = static_cast<float>(load_f64(weight.data, weight.dtype, at));
        }
    }
}

}  // namespace

PackedLinear::PackedLinear(const KernelTable& table, std::span<const LinearBand> bands, DType storage)
    : table_(&table), storage_(storage) {
    check(has_storage(storage), "linear: storage type ", name_of(storage), "; expected f32, bf16 or f16");
    check(!bands.empty(), "linear: no bands; expected at least one weight");
    check(bands[0].weight.rank == 2, "linear: weight of band 0 is ", bands[0].weight.describe(),
          "; expected rank 2");
    in_features_ = bands[0].weight.size(1);
    check(in_features_ < kMostFeatures, "linear: in_features = ", in_features_, "; expected below ",
          kMostFeatures);
    Start end{0, 0};
    for (std::size_t i = 0; i < bands.size(); ++i) {
        check_band(bands[i], i, in_features_);
        starts_.push_back(end);
        const std::int64_t width = bands[i].weight.size(0);
        for (std::int64_t at = 0; at < width; at += table.panel) {
            columns_.push_back({end.column + at, std::min<std::int64_t>(table.panel, width - at)});
        }
        end = {static_cast<std::int64_t>(columns_.size()), end.column + width + bands[i].gap};
    }
    starts_.push_back(end);

    // An odd number of cache lines from panel to panel: panels that are read side by side never share all their sets.
    const std::int64_t size = signed_size_of(storage);
    const std::int64_t panel_bytes = checked_multiply(in_features_, table.panel * size, "linear: packed weights");
    const std::int64_t lines = ceil_of(panel_bytes, kLine) | 1;
    panel_step_ = lines * kLine / size;
    const std::int64_t weight_bytes = checked_multiply(end.panel, lines * kLine, "linear: packed weights");
    const std::int64_t bias_bytes = end.panel * table.panel * signed_size_of(DType::f32);
    bytes_ = weight_bytes + bias_bytes;
    panels_ = allocate(static_cast<std::size_t>(weight_bytes));
    bias_ = allocate(static_cast<std::size_t>(bias_bytes));
    for (std::size_t i = 0; i < bands.size(); ++i) pack(bands[i], starts_[i]);
}

void PackedLinear::pack(const LinearBand& band, Start start) {
    const std::int64_t width = band.weight.size(0), panel = table_->panel, k = in_features_;
    parallel_for({}, ceil_of(width, panel), [&](std::int64_t index) {
        const std::int64_t first = index * panel, count = std::min(panel, width - first);
        const Scratch rows(static_cast<std::size_t>(count * k) * sizeof(float));
        widen_rows(*table_, band.weight, first, count, rows.data<float>());
        auto* to = static_cast<std::byte*>(panels_.get()) +
                   (start.panel + index) * panel_step_ * signed_size_of(storage_);
        table_->linear.pack_panel(to, storage_of(storage_), rows.data<float>(), k, count, k);
        float* bias = static_cast<float*>(bias_.get()) + (start.panel + index) * panel;
        for (std::int64_t i = 0; i < panel; ++i) {
            const bool given = i < count && !band.bias.empty();
            bias[i] = !given ? 0.0f
                             : static_cast<float>(
                                   load_f64(band.bias.data, band.bias.dtype, (first + i) * band.bias.stride(0)));
        }
    });
}

void PackedLinear::run(const Rows& x, const OutRows& y, const Execution& execution, int first, int count) const {
    check(is_float(x.dtype) && has_storage(y.dtype), "linear: x is ", name_of(x.dtype), " and y is ",
          name_of(y.dtype), "; expected x in a float type and y in f32, bf16 or f16");
    const auto begin = static_cast<std::size_t>(first);
    const auto end = count < 0 ? starts_.size() - 1 : begin + static_cast<std::size_t>(count);
    const LinearCall call{
        .table = *table_,
        .weights = {panels_.get(), storage_of(storage_), panel_step_, in_features_,
                    static_cast<const float*>(bias_.get()), columns_.data()},
        .first = starts_[begin].panel,
        .panels = starts_[end].panel - starts_[begin].panel,
        .origin = starts_[begin].column,
        .x = x,
        .y = y,
    };
    run_linear(call, execution);
}

}  // namespace headwise
