// What each query row sees. A mask is two answers: the interval of visible keys of a row, known before the loop over
// tiles, and, where tensors are given, per-key visibility and bias inside that interval.
#pragma once

#include <cstdint>

#include <headwise/mask.h>

namespace headwise {

struct KeyRange {
    std::int64_t begin = 0, end = 0;  // begin <= key < end; none if begin >= end

    bool empty() const noexcept { return begin >= end; }
};

// [B,H,T,S] of one attention, the shape that tensor masks broadcast to.
struct ScoreShape {
    std::int64_t B = 0, H = 0, T = 0, S = 0;
};

// Throws invalid_argument unless mask and positions fit the shape; lengths and offsets are read, nothing else is.
// `where` begins the message.
void check_mask(const Mask& mask, const Positions& positions, const ScoreShape& shape, const char* where);

class Visibility {
public:
    // Both must have passed check_mask(); the tensors must outlive this object.
    Visibility(const Mask& mask, const Positions& positions, const ScoreShape& shape) noexcept;

    // What intervals alone (causal, window, length) leave to query row i of sequence b.
    KeyRange row(std::int64_t b, std::int64_t i) const noexcept;
    // Covers row(b, i) of all i in [first, last], and little else: both ends rise with i.
    KeyRange rows(std::int64_t b, std::int64_t first, std::int64_t last) const noexcept;

    bool has_keep() const noexcept { return keep_.data != nullptr; }
    bool has_bias() const noexcept { return bias_.data != nullptr; }
    bool has_tensors() const noexcept { return has_keep() || has_bias(); }

    struct Row {
        std::int64_t b = 0, h = 0, i = 0;
    };
    // Writes visible[n] (0 or not) and, with a bias, bias[n] for n < count: key first + n of this row.
    void read(const Row& row, std::int64_t first, int count, std::uint8_t* visible, float* bias) const noexcept;

    // One key in f64: is it visible inside row(b, i), and what is added to its score?
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

    Mask mask_;
    Positions positions_;
    ScoreShape shape_;
    Broadcast keep_, bias_;
};

}  // namespace headwise
