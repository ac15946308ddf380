// T5's relative bias: the bucket of every distance, once for all rows of a layer's life.
#include <algorithm>
#include <cmath>

#include "core/dtype.h"
#include "mha/block.h"

namespace headwise {
namespace {

// Distances below half of a side's buckets have their own; the others share logarithmically up to max_distance.
std::int64_t bucket_of(const RelativeBias& rule, std::int64_t distance) {
    std::int64_t buckets = rule.buckets, start = 0, n = std::max<std::int64_t>(-distance, 0);
    if (rule.bidirectional) {
        buckets /= 2;
        start = distance > 0 ? buckets : 0;
        n = std::abs(distance);
    }
    const std::int64_t exact = buckets / 2;
    if (n < exact) return start + n;
    const double share = std::log(static_cast<double>(n) / static_cast<double>(exact)) /
                         std::log(static_cast<double>(rule.max_distance) / static_cast<double>(exact));
    // Where the share is a whole number of buckets in exact arithmetic, rounding must not put it below.
    const double step = share * static_cast<double>(buckets - exact) + 1e-9;
    return start + std::min(buckets - 1, exact + static_cast<std::int64_t>(std::floor(step)));
}

}  // namespace

// From max_distance on, all distances of a side have its last bucket; one-sided, all keys after the query have bucket 0.
std::int64_t first_distance(const RelativeBias& rule) noexcept { return -rule.max_distance; }

Tensor distance_table(const RelativeBias& rule, const ConstTensorView& table, std::int64_t heads) {
    const std::int64_t columns = rule.bidirectional ? 2 * rule.max_distance + 1 : rule.max_distance + 1;
    Tensor made(DType::f32, {heads, columns});
    for (std::int64_t n = 0; n < columns; ++n) {
        const std::int64_t bucket = bucket_of(rule, first_distance(rule) + n);
        for (std::int64_t h = 0; h < heads; ++h)
            made.data<float>()[h * columns + n] = static_cast<float>(
                load_f64(table.data, table.dtype, bucket * table.stride(0) + h * table.stride(1)));
    }
    return made;
}

}  // namespace headwise
