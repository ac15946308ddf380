// Where keys and values lie: in views, in pages that a table names, or in a KvCache. The walk over tiles sees rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <headwise/attend.h>

#include "attend/mask.h"
#include "core/storage.h"
#include "heads/kv_cache.h"
#include "kernels/kernel_table.h"

namespace headwise {

struct KeyShape {
    std::int64_t S = 0, G = 0, D = 0, Dv = 0;
};
// Of inputs that have passed check_keys().
KeyShape key_shape(const AttendInputs& in);

// Throws invalid_argument unless k and v, pages or cache fit q. Touches none of their memory.
void check_keys(const AttendInputs& in);
// The rest, once the mask is checked: entries of a page table below the lengths must be pages of the pool, and no query
// may see keys that a ring has overwritten.
void check_held_keys(const AttendInputs& in);

// Mask and positions as attend() takes them: a cache adds its lengths, and stands for bottom_right.
class HeldKeys {
public:
    explicit HeldKeys(const AttendInputs& in);

    Mask mask;
    Positions positions;

private:
    std::optional<Scratch> memory_;  // lengths and offsets
};

// The keys [first, first + keys) of one kv head, of which somebody sees those in `needed`.
struct KeyTile {
    std::int64_t b = 0, g = 0, first = 0;
    int keys = 0;
    KeyRange needed;
};

class KeySource {
public:
    KeySource(const KernelTable& kernels, const AttendInputs& in) noexcept;  // `in` must outlive it

    // Can rows lie anywhere but evenly spaced, in a type of the kernels? Then read() gathers them in scratch.
    bool gathers() const noexcept { return gathers_; }
    std::int64_t scratch_floats() const noexcept { return gathers_ ? kKeyTile * (shape_.D + shape_.Dv) : 0; }

    // Keys [0, held(b)) of a sequence lie in memory, but for those that a ring has overwritten.
    std::int64_t held(std::int64_t b) const noexcept;
    bool holds(std::int64_t b, std::int64_t key) const noexcept {
        return cache_ != nullptr ? cache_->holds(b, key) : key < held(b);
    }

    struct Rows {
        KeyRows k, v;
    };
    // Rows of all keys of a tile: where they lie, or gathered as f32. Those that nobody needs are 0, or whatever lies
    // there. The numbers are the same either way, so the bits of attention are too.
    Rows read(const KeyTile& tile, float* scratch) const noexcept;

private:
    enum class Kind { views, pages, cache };
    struct Run {  // rows that are evenly spaced
        const std::byte *k = nullptr, *v = nullptr;
        const float *k_scales = nullptr, *v_scales = nullptr;
        std::int64_t count = 0;
    };
    Run run_at(std::int64_t b, std::int64_t g, std::int64_t key) const noexcept;
    Rows gather(const KeyTile& tile, float* scratch) const noexcept;
    void gather_run(const Run& run, std::int64_t count, float* k, float* v) const noexcept;

    const KernelTable& kernels_;
    const AttendInputs& in_;
    const KvCache::Impl* cache_;
    KeyShape shape_;
    Kind kind_;
    bool quantized_ = false, gathers_ = false;
    std::int64_t page_size_ = 0;
    std::int64_t k_stride_ = 0, v_stride_ = 0;  // from key to key: elements, or bytes of a quantised cache
    Storage storage_ = Storage::f32;
};

}  // namespace headwise
