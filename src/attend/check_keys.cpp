// What attend() accepts as keys and values: views, pages or a cache.
#include <algorithm>

#include "attend/check_views.h"
#include "attend/key_source.h"
#include "core/check.h"
#include "core/check_memory.h"
#include "core/dtype.h"

namespace headwise {
namespace {

void check_types(const AttendInputs& in) {
    check(in.k.dtype == in.q.dtype && in.v.dtype == in.q.dtype, "attend: q, k and v are ", in.q.dtype, ", ",
          in.k.dtype, " and ", in.v.dtype, " but must share one type; convert() makes a copy");
}

template <class... Parts>
void check_groups(const AttendInputs& in, std::int64_t G, const Parts&... keys) {
    const std::int64_t H = in.q.size(2);
    check(G == 0 ? H == 0 : H % G == 0, "attend: ", keys..., ", but q has ", H, " heads, which ", G,
          " kv heads do not divide; H must be a multiple of G");
}

void check_view_keys(const AttendInputs& in) {
    check_heads(in.k, "k", "[B,S,G,D]");
    check_heads(in.v, "v", "[B,S,G,Dv]");
    check_types(in);
    check_size(in.k, 0, in.q.size(0), "k", "B");
    check_size(in.k, 3, in.q.size(3), "k", "D");
    check_size(in.v, 0, in.q.size(0), "v", "B");
    check_size(in.v, 1, in.k.size(1), "v", "S");
    check_size(in.v, 2, in.k.size(2), "v", "G");
    check_groups(in, in.k.size(2), "k is ", in.k);
}

void check_page_keys(const AttendInputs& in) {
    const ConstTensorView& table = in.pages.table;
    check_heads(in.k, "k", "[pages,page_size,G,D]");
    check_heads(in.v, "v", "[pages,page_size,G,Dv]");
    check_types(in);
    check(in.q.dtype != DType::f64, "attend: q is ", in.q, "; with pages q, k and v must be f32, bf16 or f16");
    check(table.rank == 2 && table.dtype == DType::i32 && table.size(0) == in.q.size(0),
          "attend: the page table is ", table, " but must be i32 [B,P] with B = ", in.q.size(0));
    check_memory(table, "attend", "the page table");
    check(in.k.size(1) > 0, "attend: k is ", in.k, "; a page must hold at least one key");
    check_size(in.k, 3, in.q.size(3), "k", "D");
    check_size(in.v, 0, in.k.size(0), "v", "the number of pages");
    check_size(in.v, 1, in.k.size(1), "v", "page_size");
    check_size(in.v, 2, in.k.size(2), "v", "G");
    check_groups(in, in.k.size(2), "k is ", in.k);
    check(!in.mask.key_lengths.empty(),
          "attend: pages without key_lengths; give the number of keys of every sequence in mask.key_lengths");
}

void check_cache_keys(const AttendInputs& in) {
    const KvCacheConfig& c = in.cache->config();
    check(in.k.empty() && in.v.empty() && in.pages.table.empty(),
          "attend: k, v or pages beside a cache; the cache holds the keys and values, append them to it");
    check(in.q.dtype != DType::f64, "attend: q is ", in.q, "; with a cache it must be f32, bf16 or f16");
    check(in.q.size(0) == c.batch && in.q.size(3) == c.key_dim, "attend: q is ", in.q, " but the cache has ",
          c.batch, " sequences and keys of ", c.key_dim, " channels");
    check_groups(in, c.kv_heads, "the cache is that of another layer");
    check(in.mask.documents.queries.empty() && in.mask.documents.keys.empty(),
          "attend: documents beside a cache; make every document a sequence of the cache");
}

std::int64_t number(const ConstTensorView& view, std::int64_t b, std::int64_t otherwise) {
    return view.empty() ? otherwise : integer_at(view, b);
}

// The lowest key that a query of sequence b can see; keep_first keys aside.
std::int64_t lowest_key(const AttendInputs& in, std::int64_t b) {
    const Mask& mask = in.mask;
    std::int64_t p = in.cache->length(b) - in.q.size(1);
    if (in.positions.align == Positions::Align::top_left) p = 0;
    if (in.positions.align == Positions::Align::per_sequence) p = number(in.positions.offsets, b, 0);
    std::int64_t lowest = std::max<std::int64_t>(0, number(mask.key_starts, b, 0)), begin = 0;
    if (mask.window_left >= 0 && !__builtin_sub_overflow(p, mask.window_left, &begin)) {
        lowest = std::max(lowest, begin);
    }
    if (mask.chunk > 0) {
        const std::int64_t origin = number(mask.chunk_origins, b, 0);
        std::int64_t from_origin = 0;
        if (!__builtin_sub_overflow(p, origin, &from_origin) && from_origin > 0) {
            lowest = std::max(lowest, origin + from_origin / mask.chunk * mask.chunk);
        }
    }
    return lowest;
}

void check_ring(const AttendInputs& in) {
    const std::int64_t kept = in.cache->config().keep_first;
    for (std::int64_t b = 0; b < in.q.size(0); ++b) {
        const std::int64_t first = in.cache->first_key(b), lowest = lowest_key(in, b);
        if (first == 0 || number(in.mask.key_lengths, b, 1) == 0) continue;
        check(lowest >= first, "attend: a query of sequence ", b, " sees keys from ", lowest,
              " on, but the ring has overwritten those below ", first,
              "; its capacity must be the window and the tokens of a call together");
        check(in.mask.window_left < 0 || in.mask.keep_first <= kept, "attend: the mask keeps the first ",
              in.mask.keep_first, " keys, but the ring only the first ", kept);
    }
}

void check_pages(const AttendInputs& in) {
    const ConstTensorView& table = in.pages.table;
    for (std::int64_t b = 0; b < in.q.size(0); ++b) {
        const std::int64_t length = number(in.mask.key_lengths, b, 0), size = in.k.size(1);
        for (std::int64_t n = 0; n * size < length; ++n) {
            const std::int32_t page =
                static_cast<const std::int32_t*>(table.data)[b * table.stride(0) + n * table.stride(1)];
            check(page >= 0 && page < in.k.size(0), "attend: entry [", b, ", ", n, "] of the page table is ", page,
                  ", but k and v have ", in.k.size(0), " pages");
        }
    }
}

}  // namespace

void check_keys(const AttendInputs& in) {
    if (in.cache != nullptr) return check_cache_keys(in);
    return in.pages.table.empty() ? check_view_keys(in) : check_page_keys(in);
}

void check_held_keys(const AttendInputs& in) {
    if (in.q.size(1) == 0) return;
    if (in.cache != nullptr) return check_ring(in);
    if (!in.pages.table.empty()) check_pages(in);
}

}  // namespace headwise
