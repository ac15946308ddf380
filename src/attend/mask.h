// What each query row sees. A mask is two answers: the spans of visible keys of a row, known before the loop over
// tiles, and, where tensors or lists of blocks are given, per-key visibility and bias inside those spans.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <headwise/mask.h>

namespace headwise {

// Positions are the caller's and may be anything: sums stop at the ends of 64 bits.
inline std::int64_t add_clamped(std::int64_t a, std::int64_t b) noexcept {
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return a < 0 ? std::numeric_limits<std::int64_t>::min() : std::numeric_limits<std::int64_t>::max();
}

struct KeyRange {
    std::int64_t begin = 0, end = 0;  // begin <= key < end; none if begin >= end

    bool empty() const noexcept { return begin >= end; }
    bool meets(const KeyRange& other) const noexcept {
        return std::max(begin, other.begin) < std::min(end, other.end);
    }
};

// What intervals leave to a row: two spans at most, in order and with a gap between them. A row that is not empty has
// a main span.
struct KeySpans {
    KeyRange early{};  // keep_first beside a window, else none
    KeyRange main{};

    bool empty() const noexcept { return main.empty(); }
    bool meets(const KeyRange& keys) const noexcept { return main.meets(keys) || early.meets(keys); }
    bool contains(std::int64_t key) const noexcept { return meets({key, key + 1}); }
    KeyRange cover() const noexcept { return early.empty() ? main : KeyRange{early.begin, main.end}; }
};

// [B,H,T,S] of one attention, the shape that tensor masks broadcast to.
struct ScoreShape {
    std::int64_t B = 0, H = 0, T = 0, S = 0;
};

// Throws invalid_argument unless mask and positions fit the shape; lengths, offsets and lists of blocks are read, nothing
// else is. `where` begins the message.
void check_mask(const Mask& mask, const Positions& positions, const ScoreShape& shape, const char* where);

class Visibility {
public:
    // Mask and positions must have passed check_mask(), and must outlive this object: small calls would feel a copy.
    Visibility(const Mask& mask, const Positions& positions, const ScoreShape& shape) noexcept;
    Visibility(const Mask&, Positions&&, const ScoreShape&) = delete;  // it would outlive them
    Visibility(Mask&&, const Positions&, const ScoreShape&) = delete;

    struct Row {
        std::int64_t b = 0, h = 0, i = 0;
    };

    // Where query row i of sequence b stands: at position p among the keys of its document, which begin with key 0 of
    // the positions at keys.begin of the tensors. Without documents that are all keys.
    struct Place {
        std::int64_t p = 0;
        KeyRange keys;
    };
    Place place(std::int64_t b, std::int64_t i) const noexcept;

    // What intervals alone (causal, window, chunk, lengths, documents) leave to query row i of sequence b.
    KeySpans spans(std::int64_t b, std::int64_t i) const noexcept;
    // Covers spans(b, i) of all i in [first, last], and little else: both ends rise with i.
    KeyRange rows(std::int64_t b, std::int64_t first, std::int64_t last) const noexcept;
    // Does a row of heads [first_head, first_head + heads) see one of these keys? Exact: keys of a range for which this
    // is false may not even be read.
    bool sees(std::int64_t b, std::int64_t first_head, std::int64_t heads, const KeyRange& keys) const noexcept;

    bool has_keep() const noexcept { return keep_.data != nullptr; }
    bool has_bias() const noexcept { return bias_.data != nullptr; }
    bool has_blocks() const noexcept { return mask_.blocks.query_block > 0; }
    bool has_documents() const noexcept { return !mask_.documents.queries.empty(); }
    // Is there more to ask than spans()?
    bool has_tensors() const noexcept { return has_keep() || has_bias() || has_blocks(); }
    bool has_gaps() const noexcept { return has_window() && mask_.keep_first > 0; }

    // Writes visible[n] (0 or not) and, with a bias, bias[n] for n < count: key first + n of this row, whatever spans() say.
    void read(const Row& row, std::int64_t first, int count, std::uint8_t* visible, float* bias) const noexcept;

    // One key in f64: is it visible inside spans(b, i), and what is added to its score?
    bool read_f64(const Row& row, std::int64_t key, double& bias) const noexcept;

    // Does the mask hide every key of this row?
    bool hides_all(const Row& row) const noexcept;

private:
    // A tensor broadcast to [B,H,T,S]: size-1 axes have stride 0.
    struct Broadcast {
        const void* data = nullptr;
        DType dtype = DType::f32;
        std::int64_t strides[4] = {};

        Broadcast(const ConstTensorView& view) noexcept;
        std::int64_t at(const Row& row, std::int64_t key) const noexcept {
            return row.b * strides[0] + row.h * strides[1] + row.i * strides[2] + key * strides[3];
        }
    };

    // The window of a row, what keep_first adds to it, and what all else leaves.
    struct Bounds {
        KeyRange base, window, early;
    };
    Bounds bounds(std::int64_t b, std::int64_t i) const noexcept;
    bool has_window() const noexcept { return mask_.window_left >= 0 || mask_.window_right >= 0; }
    std::int64_t document_of(std::int64_t i) const noexcept;
    std::int64_t offset_of(std::int64_t sequence, std::int64_t bottom_right) const noexcept;
    void hide_blocks(const Row& row, std::int64_t first, int count, std::uint8_t* visible) const noexcept;
    bool sees_tensors(const Row& row, const KeyRange& keys) const noexcept;

    const Mask& mask_;
    const Positions& positions_;
    const ConstTensorView& document_keys_;
    ScoreShape shape_;
    Broadcast keep_, bias_;
};

}  // namespace headwise
