#include "attend/row_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "kernels/storage_of.h"

namespace headwise {

RowRules::RowRules(const Problem& problem, const RowBlock& block, std::int64_t in_call, Carver& carver) noexcept
    : problem_(problem),
      block_(block),
      ranges_(carver.take<KeyRange>(block.count)),
      begin_(carver.take<std::int32_t>(in_call)),
      end_(carver.take<std::int32_t>(in_call)) {
    if (problem.visibility.has_tensors()) visible_ = carver.take<std::uint8_t>(in_call * kKeyTile);
    if (problem.visibility.has_bias()) bias_ = carver.take<float>(in_call * kKeyTile);
}

void RowRules::load(float* q) noexcept {
    const Storage storage = storage_of(problem_.q.dtype);
    for (std::int64_t row = 0; row < block_.count; ++row) {
        const Visibility::Row at = name(row);
        problem_.kernels.attend.load_query(q + row * problem_.D, head_row(problem_.q, at.b, at.i, at.h), storage,
                                           problem_.D, static_cast<float>(problem_.scale));
        ranges_[row] = problem_.visibility.row(at.b, at.i);
    }
}

bool RowRules::see(std::int64_t first, std::int64_t row, AttendTile& tile) noexcept {
    bool some = false;
    for (int r = 0; r < tile.rows; ++r) {
        const KeyRange range = ranges_[row + r];
        const std::int64_t begin = std::clamp<std::int64_t>(range.begin - first, 0, kKeyTile);
        const std::int64_t end = std::clamp<std::int64_t>(range.end - first, 0, kKeyTile);
        begin_[r] = static_cast<std::int32_t>(begin);
        end_[r] = static_cast<std::int32_t>(std::max(begin, end));
        some = some || begin < end;
    }
    if (!some) return false;
    if (problem_.visibility.has_tensors()) read_tensors(first, row, tile.rows);
    tile.begin = begin_, tile.end = end_;
    tile.visible = visible_, tile.bias = bias_;
    return true;
}

void RowRules::read_tensors(std::int64_t first, std::int64_t row, int count) noexcept {
    for (int r = 0; r < count; ++r) {
        const int begin = begin_[r], keys = end_[r] - begin;
        if (keys == 0) continue;
        const std::int64_t at = r * kKeyTile + begin;
        problem_.visibility.read(name(row + r), first + begin, keys, visible_ + at,
                                 bias_ == nullptr ? nullptr : bias_ + at);
    }
}

void RowRules::store(std::int64_t row, const float* o, float max, float sum) noexcept {
    const Visibility::Row at = name(row);
    // A sum of 0 tells that no key was seen, or that all scores were -inf: only the mask knows which.
    const bool empty = sum == 0.0f && problem_.visibility.hides_all(at);
    const float divisor = empty ? 1.0f : sum;
    problem_.kernels.attend.store_output(head_row(problem_.out, at.b, at.i, at.h), storage_of(problem_.out.dtype),
                                         o, divisor, problem_.Dv);
    if (problem_.lse.empty()) return;
    const double lse = max + std::log(static_cast<double>(divisor));
    store_lse(problem_, at, divisor == 0.0f ? std::numeric_limits<double>::quiet_NaN() : lse);
}

}  // namespace headwise
