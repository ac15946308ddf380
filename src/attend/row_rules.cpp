#include "attend/row_rules.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/dtype.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max(), kLeast = -kMost - 1;

// What is left of a span in the tile that starts at `first`, from there on.
KeyRange in_tile(const KeyRange& span, std::int64_t first) noexcept {
    const std::int64_t begin = std::clamp<std::int64_t>(span.begin - first, 0, kKeyTile);
    return {begin, std::max(begin, std::clamp<std::int64_t>(span.end - first, 0, kKeyTile))};
}

// Ends of a softmax: what sums are divided by, and the log-sum-exp, with the sink.
struct RowEnd {
    double divisor, lse;
};
RowEnd end_of(double max, double sum, double sink) noexcept {
    if (sink == -kInfinity) {
        return {sum, sum == 0 ? std::numeric_limits<double>::quiet_NaN() : max + std::log(sum)};
    }
    if (!(sink < kInfinity)) return {sink - sink, sink - sink};  // NaN
    const double divisor = sum + std::exp(sink - max);
    return {divisor, sink <= max ? max + std::log(divisor) : sink + std::log1p(sum * std::exp(max - sink))};
}

}  // namespace

RowRules::RowRules(const Problem& problem, const RowBlock& block, std::int64_t in_call, Carver& carver) noexcept
    : problem_(problem),
      block_(block),
      spans_(carver.take<KeySpans>(block.count)),
      begin_(carver.take<std::int32_t>(in_call)),
      end_(carver.take<std::int32_t>(in_call)) {
    const Visibility& mask = problem.visibility;
    if (mask.has_tensors() || mask.has_gaps()) visible_ = carver.take<std::uint8_t>(in_call * kKeyTile);
    if (mask.has_bias() || problem.rules.has_position_bias()) bias_ = carver.take<float>(in_call * kKeyTile);
    if (problem.rules.has_position_bias()) key_zero_ = carver.take<std::int64_t>(block.count);
    if (problem.rules.has_gate()) gate_ = carver.take<float>(problem.Dv + problem.kernels.lanes);
}

void RowRules::load(float* q) noexcept {
    const Storage storage = storage_of(problem_.q.dtype);
    for (std::int64_t row = 0; row < block_.count; ++row) {
        const Visibility::Row at = name(row);
        const auto scale = static_cast<float>(problem_.scale * problem_.rules.tau(at.b, at.i));
        problem_.kernels.attend.load_query(q + row * problem_.D, head_row(problem_.q, at.b, at.i, at.h), storage,
                                           problem_.D, scale);
        spans_[row] = problem_.visibility.spans(at.b, at.i);
        if (key_zero_ == nullptr) continue;
        const Visibility::Place place = problem_.visibility.place(at.b, at.i);
        key_zero_[row] = add_clamped(-place.keys.begin, place.p == kLeast ? kMost : -place.p);
    }
}

bool RowRules::see(std::int64_t first, std::int64_t row, AttendTile& tile) noexcept {
    const bool may_gap = problem_.visibility.has_gaps();
    bool some = false, gaps = false;
    for (int r = 0; r < tile.rows; ++r) {
        const KeySpans& spans = spans_[row + r];
        KeyRange range = in_tile(spans.main, first);
        if (may_gap) {
            const KeyRange early = in_tile(spans.early, first);
            gaps = gaps || (!early.empty() && !range.empty());
            if (!early.empty()) range = {early.begin, range.empty() ? early.end : range.end};
        }
        begin_[r] = static_cast<std::int32_t>(range.begin);
        end_[r] = static_cast<std::int32_t>(range.end);
        some = some || !range.empty();
    }
    if (!some) return false;
    tile.begin = begin_, tile.end = end_;
    tile.visible = nullptr, tile.bias = bias_;
    if (gaps || problem_.visibility.has_tensors()) {
        some = false;
        for (int r = 0; r < tile.rows; ++r) {
            if (begin_[r] < end_[r] && !read_row(first, row, r)) tile.visible = visible_;
            some = some || begin_[r] < end_[r];
        }
    }
    if (some && problem_.rules.has_position_bias()) add_position_biases(first, row, tile.rows);
    return some;
}

// Reads what the tensors say of the keys between begin and end, and draws the two together around the visible ones. Are
// these without a gap?
bool RowRules::read_row(std::int64_t first, std::int64_t row, int r) noexcept {
    std::uint8_t* const visible = visible_ + r * kKeyTile;
    int begin = begin_[r], end = end_[r];
    problem_.visibility.read(name(row + r), first + begin, end - begin, visible + begin,
                             bias_ == nullptr ? nullptr : bias_ + r * kKeyTile + begin);
    if (problem_.visibility.has_gaps()) {
        const KeySpans& spans = spans_[row + r];
        const KeyRange gap = in_tile({spans.early.end, spans.main.begin}, first);
        const std::int64_t from = std::max<std::int64_t>(gap.begin, begin),
                           to = std::min<std::int64_t>(gap.end, end);
        if (!spans.early.empty() && from < to) std::memset(visible + from, 0, static_cast<std::size_t>(to - from));
    }
    int hidden = 0;
    for (int n = begin; n < end; ++n) hidden += visible[n] == 0;
    while (begin < end && visible[begin] == 0) ++begin, --hidden;
    while (begin < end && visible[end - 1] == 0) --end, --hidden;
    begin_[r] = begin, end_[r] = end;
    return hidden == 0;
}

void RowRules::add_position_biases(std::int64_t first, std::int64_t row, int count) noexcept {
    for (int r = 0; r < count; ++r) {
        const int begin = begin_[r], keys = end_[r] - begin;
        if (keys == 0) continue;
        float* const bias = bias_ + r * kKeyTile + begin;
        if (!problem_.visibility.has_bias()) std::fill_n(bias, keys, 0.0f);
        const std::int64_t distance = add_clamped(key_zero_[row + r], first + begin);
        problem_.rules.add_position_bias(name(row + r).h, distance, keys, bias);
    }
}

void RowRules::drop(std::int64_t first, std::int64_t row, const AttendTile& tile) const noexcept {
    if (!problem_.rules.has_dropout()) return;
    for (int r = 0; r < tile.rows; ++r) {
        const Visibility::Row at = name(row + r);
        float* const weights = tile.p + r * kKeyTile;
        for (int n = tile.begin[r]; n < tile.end[r]; ++n) {
            // 0 and not -0: the key is still seen, and a NaN of its value with it.
            if (!std::signbit(weights[n]) && !problem_.rules.keeps(at, first + n)) weights[n] *= 0.0f;
        }
    }
}

void RowRules::store(std::int64_t row, float* o, float max, float sum) noexcept {
    const Visibility::Row at = name(row);
    const double sink = problem_.rules.sink(at.h);
    // A sum of 0 tells that no key was seen, or that all scores were -inf: only the mask knows which.
    const bool empty = sum == 0.0f && problem_.visibility.hides_all(at);
    RowEnd end = empty ? RowEnd{1, sink} : end_of(max, sum, sink);
    store_lse(problem_, at, end.lse);
    end.divisor *= empty ? 1 : problem_.rules.keep_share();
    if (end.divisor > std::numeric_limits<float>::max()) {  // a sink far above all scores
        for (std::int64_t c = 0; c < problem_.Dv; ++c) o[c] = static_cast<float>(o[c] / end.divisor);
        end.divisor = 1;
    }
    const bool gated = gate_ != nullptr && !empty;
    if (gated) problem_.rules.load_gate(problem_.kernels, at, problem_.Dv, gate_);
    problem_.kernels.attend.store_output(head_row(problem_.out, at.b, at.i, at.h), storage_of(problem_.out.dtype),
                                         o, static_cast<float>(end.divisor), gated ? gate_ : nullptr, problem_.Dv);
}

}  // namespace headwise
