// What attend() accepts as mask and positions.
#include <algorithm>

#include "attend/mask.h"
#include "core/check.h"
#include "core/check_memory.h"
#include "core/dtype.h"

namespace headwise {
namespace {

bool is_integer(DType dtype) { return dtype == DType::i32 || dtype == DType::i64; }

void check_numbers(const ConstTensorView& view, std::int64_t count, const char* where, const char* name,
                   const char* axes) {
    check(view.rank == 1 && view.size(0) == count && is_integer(view.dtype), where, ": ", name, " is ", view,
          " but must be i32 or i64 ", axes, " = [", count, "]");
    check_memory(view, where, name);
}

void check_broadcast(const ConstTensorView& view, const ScoreShape& shape, const char* where, const char* name) {
    const std::int64_t sizes[4] = {shape.B, shape.H, shape.T, shape.S};
    bool fits = view.rank <= 4;
    for (int axis = 0; fits && axis < view.rank; ++axis) {
        fits = view.size(axis) == 1 || view.size(axis) == sizes[4 - view.rank + axis];
    }
    check(fits, where, ": ", name, " is ", view, ", which does not broadcast to [B,H,T,S] = [", shape.B, ", ",
          shape.H, ", ", shape.T, ", ", shape.S, "]; axes are aligned from the right and may be 1");
    check_memory(view, where, name);
}

void check_intervals(const Mask& mask, const ScoreShape& shape, const char* where) {
    check(mask.window_left >= -1 && mask.window_right >= -1, where, ": the window is ", mask.window_left, " and ",
          mask.window_right, "; give how many keys before and after the query are seen, or -1 for no limit");
    check(mask.keep_first >= 0, where, ": keep_first is ", mask.keep_first,
          "; give how many of the first keys pass the window, or 0");
    check(mask.chunk >= 0, where, ": the chunk is ", mask.chunk, "; give a number of keys, or 0 for none");
    if (mask.chunk_origins.empty()) return;
    check(mask.chunk > 0, where, ": there are chunk_origins but no chunk");
    check_numbers(mask.chunk_origins, shape.B, where, "chunk_origins", "[B]");
}

// Keys are counted from 0: every number lies in [0, S].
void check_counts(const ConstTensorView& view, const ScoreShape& shape, const char* where, const char* name) {
    if (view.empty()) return;
    check_numbers(view, shape.B, where, name, "[B]");
    for (std::int64_t b = 0; b < shape.B; ++b) {
        const std::int64_t count = integer_at(view, b);
        check(count >= 0 && count <= shape.S, where, ": ", name, "[", b, "] is ", count,
              " but must be a count between 0 and S = ", shape.S);
    }
}

void check_cu_seqlens(const ConstTensorView& view, std::int64_t total, const char* where, const char* name) {
    check(view.rank == 1 && view.size(0) >= 1 && is_integer(view.dtype), where, ": ", name, " is ", view,
          " but must be i32 or i64 [documents + 1]");
    check_memory(view, where, name);
    const std::int64_t last = view.size(0) - 1;
    check(integer_at(view, 0) == 0, where, ": ", name, "[0] is ", integer_at(view, 0), " but must be 0");
    for (std::int64_t d = 0; d < last; ++d) {
        check(integer_at(view, d) <= integer_at(view, d + 1), where, ": ", name, " falls from ",
              integer_at(view, d), " to ", integer_at(view, d + 1), " at [", d + 1,
              "]; each entry is where a document begins");
    }
    check(integer_at(view, last) == total, where, ": ", name, " ends with ", integer_at(view, last),
          " but must end with all ", total, "; every row belongs to a document");
}

// Returns the number of sequences that positions speak of.
std::int64_t check_documents(const Mask& mask, const ScoreShape& shape, const char* where) {
    const Documents& documents = mask.documents;
    if (documents.queries.empty()) {
        check(documents.keys.empty(), where, ": the documents have keys but no queries");
        return shape.B;
    }
    check(shape.B == 1, where, ": there are documents in a batch of ", shape.B,
          "; packed sequences share one sequence, B = 1");
    check_cu_seqlens(documents.queries, shape.T, where, "documents.queries");
    if (documents.keys.empty()) {
        check(shape.S == shape.T, where, ": the documents have no keys of their own, but T = ", shape.T,
              " and S = ", shape.S, " differ");
    } else {
        check(documents.keys.rank == 1 && documents.keys.size(0) == documents.queries.size(0), where,
              ": documents.keys is ", documents.keys, " but documents.queries is ", documents.queries);
        check_cu_seqlens(documents.keys, shape.S, where, "documents.keys");
    }
    check(
        mask.key_lengths.empty() && mask.key_starts.empty() && mask.chunk_origins.empty(), where,
        ": key_lengths, key_starts and chunk_origins belong to the sequences of a batch, and cannot be given with "
        "documents; say what belongs to a document in its cu_seqlens");
    return documents.queries.size(0) - 1;
}

// Sizes of [B,H,query blocks], where B and H may be 1.
void check_block_axes(const ConstTensorView& view, const ScoreShape& shape, std::int64_t query_blocks, int rank,
                      const char* where, const char* name) {
    check(view.rank == rank && is_integer(view.dtype) && (view.size(0) == 1 || view.size(0) == shape.B) &&
              (view.size(1) == 1 || view.size(1) == shape.H) && view.size(2) == query_blocks,
          where, ": ", name, " is ", view, " but must be i32 or i64 [B,H,ceil(T/query_block)",
          rank == 4 ? ",M" : "", "] = [", shape.B, ", ", shape.H, ", ", query_blocks, rank == 4 ? ", M" : "",
          "], where B and H may be 1");
    check_memory(view, where, name);
}

std::int64_t ceil_of(std::int64_t size, std::int64_t block) { return size / block + (size % block != 0); }

class BlockListCheck {
public:
    BlockListCheck(const BlockList& list, const ScoreShape& shape, const char* where)
        : list_(list), where_(where), key_blocks_(ceil_of(shape.S, list.key_block)) {
        const std::int64_t query_blocks = ceil_of(shape.T, list.query_block);
        check_block_axes(list.counts, shape, query_blocks, 3, where, "blocks.counts");
        check_block_axes(list.blocks, shape, query_blocks, 4, where, "blocks.blocks");
    }

    void run() const {
        const std::int64_t heads = std::max(list_.counts.size(1), list_.blocks.size(1));
        for (std::int64_t b = 0; b < std::max(list_.counts.size(0), list_.blocks.size(0)); ++b)
            for (std::int64_t h = 0; h < heads; ++h)
                for (std::int64_t n = 0; n < list_.counts.size(2); ++n) check_one(b, h, n);
    }

private:
    static std::int64_t at(const ConstTensorView& view, std::int64_t b, std::int64_t h, std::int64_t n) {
        return (view.size(0) == 1 ? 0 : b * view.stride(0)) + (view.size(1) == 1 ? 0 : h * view.stride(1)) +
               n * view.stride(2);
    }

    void check_one(std::int64_t b, std::int64_t h, std::int64_t n) const {
        const std::int64_t count = load_i64(list_.counts.data, list_.counts.dtype, at(list_.counts, b, h, n));
        check(count >= 0 && count <= list_.blocks.size(3), where_, ": blocks.counts[", b, ", ", h, ", ", n,
              "] is ", count, " but blocks.blocks has room for ", list_.blocks.size(3));
        std::int64_t before = -1;
        for (std::int64_t m = 0; m < count; ++m) {
            const std::int64_t block = load_i64(list_.blocks.data, list_.blocks.dtype,
                                                at(list_.blocks, b, h, n) + m * list_.blocks.stride(3));
            check(block > before && block < key_blocks_, where_, ": blocks.blocks[", b, ", ", h, ", ", n, ", ", m,
                  "] is ", block, " after ", before, "; the list must rise and stay below the ", key_blocks_,
                  " blocks of keys");
            before = block;
        }
    }

    const BlockList& list_;
    const char* where_;
    std::int64_t key_blocks_;
};

void check_blocks(const BlockList& list, const ScoreShape& shape, const char* where) {
    const bool none = list.counts.empty() && list.blocks.empty() && list.query_block == 0 && list.key_block == 0;
    if (none) return;
    check(list.query_block > 0 && list.key_block > 0, where, ": blocks are of ", list.query_block, " rows and ",
          list.key_block, " keys; both must be positive");
    BlockListCheck(list, shape, where).run();
}

void check_tensors(const Mask& mask, const ScoreShape& shape, const char* where) {
    if (!mask.keep.empty()) {
        check(mask.keep.dtype == DType::boolean, where, ": the keep mask is ", mask.keep,
              " but must be bool (true = attend); give numbers that are added to scores as a bias");
        check_broadcast(mask.keep, shape, where, "the keep mask");
    }
    if (!mask.bias.empty()) {
        check(is_float(mask.bias.dtype), where, ": the bias is ", mask.bias,
              " but must be f32, bf16, f16 or f64; give true and false as a keep mask");
        check_broadcast(mask.bias, shape, where, "the bias");
    }
}

}  // namespace

void check_mask(const Mask& mask, const Positions& positions, const ScoreShape& shape, const char* where) {
    check_intervals(mask, shape, where);
    check_counts(mask.key_starts, shape, where, "key_starts");
    check_counts(mask.key_lengths, shape, where, "key_lengths");
    const std::int64_t sequences = check_documents(mask, shape, where);
    const bool own_offsets = positions.align == Positions::Align::per_sequence;
    check(own_offsets || positions.offsets.empty(), where,
          ": positions carry offsets but are not aligned per sequence; use Positions::at(offsets)");
    if (own_offsets) {
        check_numbers(positions.offsets, sequences, where, "offsets",
                      mask.documents.queries.empty() ? "[B]" : "[documents]");
    }
    check_blocks(mask.blocks, shape, where);
    check_tensors(mask, shape, where);
}

}  // namespace headwise
