// The keys and values of earlier tokens, of one layer: 2*N*E numbers a layer for N tokens of multi-head attention, G/H of
// that with shared heads. Decoding reads all of it for every token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <headwise/cpu.h>
#include <headwise/export.h>
#include <headwise/tensor.h>

namespace headwise {

enum class CacheKind : std::uint8_t {
    contiguous,  // [capacity] rows per sequence
    ring,        // the newest `capacity` keys of each sequence: enough for a window of that many keys
    paged,       // pages of page_size rows from a pool; sequences and forks share pages until one writes to them
};

// int8: x = scale * n, |n| <= 127. int4: x = scale * n, |n| <= 7. One f32 scale (the largest |x| of the group over 127
// or 7) for each token, head and group of `scale_group` channels: |x - stored| <= scale / 2 and the rounding of f32. A
// group that holds NaN or Inf is NaN as a whole. docs/cache.md has the bound of what attention makes of it.
enum class CacheType : std::uint8_t { f32, bf16, f16, int8, int4 };

struct KvCacheConfig {
    std::int64_t batch = 1;     // B sequences
    std::int64_t kv_heads = 0;  // G
    std::int64_t key_dim = 0;   // D
    std::int64_t value_dim = 0;
    bool value_in_key =
        false;  // the value is the first value_dim columns of the key (MLA's latent): nothing else is kept
    std::int64_t capacity = 0;    // keys of a sequence
    std::int64_t keep_first = 0;  // ring: keys t < keep_first are never overwritten; they count to the capacity
    CacheKind kind = CacheKind::contiguous;
    CacheType type = CacheType::f32;
    std::int64_t page_size = 64;   // paged
    std::int64_t pages = 0;        // paged: of the pool; 0 = what B full sequences need
    std::int64_t scale_group = 0;  // int8, int4: channels of one scale; 0 = the whole head
};

// Threads may read one cache at the same time; a call that changes it must be alone. Copies are forks: see fork().
class HEADWISE_API KvCache {
public:
    explicit KvCache(const KvCacheConfig& config);  // throws invalid_argument, out_of_memory
    ~KvCache();
    KvCache(KvCache&&) noexcept;  // what is left may only be destroyed or assigned to
    KvCache& operator=(KvCache&&) noexcept;

    const KvCacheConfig& config() const noexcept;
    std::int64_t length(std::int64_t b) const;     // tokens appended so far: the absolute position of the next one
    std::int64_t first_key(std::int64_t b) const;  // the cache holds all keys from it on; above 0 only in a ring,
                                                   // which holds those below keep_first besides
    std::int64_t longest() const noexcept;         // largest length
    std::int64_t bytes() const noexcept;           // of all rows, unused capacity included; paged: of the pool
    std::int64_t free_pages() const noexcept;      // paged: of the pool

    // Appends k [B,T,G,D] and v [B,T,G,Dv] (f32, bf16 or f16, innermost stride 1; v empty with value_in_key) to all
    // sequences; `counts` i32 or i64 [B]: only the first counts[b] of the T. All or nothing: throws Error cache_full,
    // with nothing changed, if one sequence does not fit. A ring is never full. Steady calls allocate nothing.
    void append(const ConstTensorView& k, const ConstTensorView& v, const ConstTensorView& counts = {},
                const Execution& execution = {});

    // Forgets the keys from `length` on: speculative decoding's rollback. Throws invalid_argument beyond the length, and
    // below first_key() of a ring. Keys that a ring has overwritten do not come back: make it larger than the window by
    // what is rolled back.
    void truncate(std::int64_t b, std::int64_t length);
    void clear();

    // Sequence b becomes what sequence from[b] was, for all b at once (beam search). Pages are shared, other kinds copied.
    void reorder(const std::vector<std::int64_t>& from);
    // A cache of its own with the same contents. Pages come from the same pool and are shared until one side appends to
    // one; forks may be used by different threads at the same time.
    KvCache fork() const;

    // What the cache holds for keys [first, first + count) of a sequence, as f32 [count,G,D] and [count,G,Dv].
    Tensor keys(std::int64_t b, std::int64_t first, std::int64_t count) const;
    Tensor values(std::int64_t b, std::int64_t first, std::int64_t count) const;

    struct Impl;
    const Impl& impl() const noexcept { return *impl_; }
    Impl& impl() noexcept { return *impl_; }

    explicit KvCache(std::unique_ptr<Impl> impl) noexcept;  // for headwise itself

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace headwise
