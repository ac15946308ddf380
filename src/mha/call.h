// One call of forward() with everything resolved: sources, sizes, mask, positions. Trusted from here on.
#pragma once

#include <cstdint>

#include <headwise/mha.h>

#include "mha/block.h"

namespace headwise {

struct Call {
    const ForwardOptions& options;
    ConstTensorView x{};  // [B,T,E]
    ConstTensorView key{},
        value{};          // sources of new keys and values [B,N,...]; empty where the cache is only read
    bool self = false;    // q, k and v all come from x
    bool one_kv = false;  // k and v come from one source
    std::int64_t B = 0, T = 0;
    std::int64_t N = 0;  // new keys of a sequence
    std::int64_t S = 0;  // keys that queries attend to: N, or the longest length of the cache after the append
    Mask mask{};         // of the config and of the call, counts included

    bool appends() const noexcept { return options.cache != nullptr && options.cache_use == CacheUse::append; }
    bool reads() const noexcept { return options.cache != nullptr && options.cache_use == CacheUse::read; }
    // Real new keys of sequence b.
    std::int64_t count(std::int64_t b) const noexcept;
};

// [T,E] is one sequence.
template <class View>
View with_batch(const View& view) {
    return view.rank == 2 ? view.split_axis(0, 1, view.size(0)) : view;
}

// Throws invalid_argument unless `view` is [B,tokens,width] or [tokens,width] of a storage type.
void check_rows(const ConstTensorView& view, const char* name, std::int64_t width);

// Throws invalid_argument, or cache_full where the cache has no room for the new keys.
Call check_call(const Block& block, const ConstTensorView& x, const TensorView& y, const ForwardOptions& options);

}  // namespace headwise
