// Caches as files: the config in the metadata; lengths, a list of blocks and the rows of each block as tensors.
//
//   lengths, first   I64 [B]
//   blocks           I32: the blocks of sequence 0, then those of sequence 1, ...; numbered as they first appear
//   keys, values     for each block, its heads one behind the other: the rows that some sequence fills. F32, BF16 or F16
//                    [rows,width]; the bytes of int8 and int4 as I32 [whole words]
//   key_scales, value_scales   F32 [rows,scales]
#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <type_traits>

#include <headwise/weights.h>

#include "core/check.h"
#include "core/storage.h"
#include "heads/kv_cache.h"
#include "weights/quote.h"

namespace headwise {
namespace {

constexpr const char* kFormat = "headwise-kv-cache";
constexpr const char* kVersion = "1";

// ---- the config as text --------------------------------------------------------------------------------------

// Every field by name, as a number.
template <class Config, class Body>
void for_fields(Config& config, Body body) {
    body("batch", config.batch), body("kv_heads", config.kv_heads);
    body("key_dim", config.key_dim), body("value_dim", config.value_dim);
    body("value_in_key", config.value_in_key), body("capacity", config.capacity);
    body("keep_first", config.keep_first), body("kind", config.kind), body("type", config.type);
    body("page_size", config.page_size), body("pages", config.pages), body("scale_group", config.scale_group);
}

std::map<std::string, std::string> text_of(const KvCacheConfig& config) {
    std::map<std::string, std::string> metadata = {{"format", kFormat}, {"version", kVersion}};
    for_fields(config, [&](const char* name, const auto& field) {
        metadata[name] = std::to_string(static_cast<std::int64_t>(field));
    });
    return metadata;
}

KvCacheConfig config_of(const std::string& path, const std::map<std::string, std::string>& metadata) {
    const auto value = [&](const std::string& name) -> const std::string& {
        const auto found = metadata.find(name);
        if (found == metadata.end()) fail(ErrorCode::bad_data, path, ": no ", name, " in the metadata of a cache");
        return found->second;
    };
    if (value("format") != kFormat || value("version") != kVersion) {
        fail(ErrorCode::bad_data, path, ": format ", quote(value("format")), ", version ", quote(value("version")),
             "; expected ", kFormat, ", version ", kVersion);
    }
    KvCacheConfig config;
    for_fields(config, [&]<class Field>(const char* name, Field& field) {
        const std::string& written = value(name);
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(written.data(), written.data() + written.size(), number);
        constexpr std::int64_t kMost = std::is_same_v<Field, bool>        ? 1
                                       : std::is_same_v<Field, CacheKind> ? std::int64_t(CacheKind::paged)
                                       : std::is_same_v<Field, CacheType>
                                           ? std::int64_t(CacheType::int4)
                                           : std::numeric_limits<std::int64_t>::max();
        if (error != std::errc() || end != written.data() + written.size() || number < 0 || number > kMost) {
            fail(ErrorCode::bad_data, path, ": ", name, " of the cache is ", quote(written),
                 "; expected a whole number from 0 to ", kMost);
        }
        field = static_cast<Field>(number);
    });
    return config;
}

// ---- which rows are in the file ------------------------------------------------------------------------------

DType dtype_of(CacheType type) {
    return type == CacheType::f32    ? DType::f32
           : type == CacheType::bf16 ? DType::bf16
           : type == CacheType::f16  ? DType::f16
                                     : DType::i32;
}

// Rows that sequence b fills of its block n.
std::int64_t filled(const KvCache::Impl& cache, std::int64_t length, std::int64_t n) {
    const std::int64_t before = cache.config.kind == CacheKind::paged ? n * cache.layout.rows : 0;
    return std::min(length - before, cache.layout.rows);
}

// One list of rows of the file: where a cache has it, and how wide it is.
struct Part {
    const char* name;
    std::int64_t bytes;  // of a row
    DType dtype;
    std::int64_t width;  // of a row in elements; 0: the rows are bytes in words
    std::byte* (*at)(const CacheRows& rows);
};

std::vector<Part> parts_of(const KvCache::Impl& cache) {
    const BlockLayout& layout = cache.layout;
    const DType dtype = dtype_of(cache.config.type);
    const auto width = [&](std::int64_t row) {
        return dtype == DType::i32 ? 0 : row / static_cast<std::int64_t>(size_of(dtype));
    };
    std::vector<Part> parts = {
        {"keys", layout.key_row, dtype, width(layout.key_row), [](const CacheRows& rows) { return rows.keys; }},
        {"values", layout.value_row, dtype, width(layout.value_row),
         [](const CacheRows& rows) { return rows.values; }},
        {"key_scales", 4 * layout.key_scales, DType::f32, layout.key_scales,
         [](const CacheRows& rows) { return reinterpret_cast<std::byte*>(rows.key_scales); }},
        {"value_scales", 4 * layout.value_scales, DType::f32, layout.value_scales,
         [](const CacheRows& rows) { return reinterpret_cast<std::byte*>(rows.value_scales); }}};
    std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
    return parts;
}

std::vector<std::int64_t> sizes_of(const Part& part, std::int64_t rows) {
    const std::int64_t bytes = checked_multiply(rows, part.bytes, "cache file");
    if (part.width == 0) return {bytes / 4 + (bytes % 4 != 0)};
    return {rows, part.width};
}

// A block of the cache and the rows of it that are in the file; by their number there.
struct StoredBlock {
    std::int32_t id;
    std::int64_t rows;
};

std::int64_t rows_of(const KvCache::Impl& cache, const std::vector<StoredBlock>& blocks) {
    std::int64_t rows = 0;
    for (const StoredBlock& block : blocks) rows += block.rows * cache.layout.G;  // rows that exist in memory
    return rows;
}

// Copies rows between a cache and the data of a tensor: copy(in the cache, in the tensor, bytes).
template <class Copy>
void for_rows(const KvCache::Impl& cache, const std::vector<StoredBlock>& blocks, const Part& part, void* data,
              Copy copy) {
    auto* at = static_cast<std::byte*>(data);
    for (const StoredBlock& block : blocks) {
        for (std::int64_t g = 0; g < cache.layout.G; ++g) {
            const auto bytes = static_cast<std::size_t>(block.rows * part.bytes);
            if (bytes > 0) copy(part.at(cache.rows_of_block(block.id, g, 0)), at, bytes);
            at += bytes;
        }
    }
}

// ---- reading -------------------------------------------------------------------------------------------------

class CacheReader {
public:
    CacheReader(const std::string& path, const FileLimits& limits)
        : path_(path), limits_(limits), file_(path, limits) {}

    KvCache read() {
        const KvCacheConfig config = config_of(path_, file_.metadata());
        check_memory(config);
        const Tensor lengths = load("lengths", DType::i64, {config.batch});
        const Tensor first = load("first", DType::i64, {config.batch});
        auto cache = with_memory([&] { return std::make_unique<KvCache::Impl>(config); });
        for (std::int64_t b = 0; b < config.batch; ++b) {
            set_lengths(*cache, b, lengths.data<std::int64_t>()[b], first.data<std::int64_t>()[b]);
        }
        const std::vector<StoredBlock> blocks = load_blocks(*cache, lengths_);
        const std::vector<Part> parts = parts_of(*cache);
        if (file_.names().size() > 3 + parts.size()) refuse(": tensors besides those of a cache");
        for (const Part& part : parts) {
            const Tensor rows = load(part.name, part.dtype, sizes_of(part, rows_of(*cache, blocks)));
            for_rows(*cache, blocks, part, const_cast<std::byte*>(rows.data<std::byte>()),
                     [](void* held, const void* stored, std::size_t bytes) { std::memcpy(held, stored, bytes); });
        }
        for (std::int64_t b = 0; b < config.batch; ++b) cache->at(b) = lengths_[static_cast<std::size_t>(b)];
        return KvCache(std::move(cache));
    }

private:
    template <class... Words>
    [[noreturn]] void refuse(const Words&... words) const {
        fail(ErrorCode::bad_data, path_, words...);
    }

    // Type and sizes are compared before the tensor is read.
    Tensor load(const std::string& name, DType dtype, const std::vector<std::int64_t>& sizes) const {
        const std::optional<TensorInfo> info = file_.find(name);
        if (!info) refuse(": no tensor ", quote(name), ", which every such cache has");
        if (info->sizes != sizes) {
            refuse(": tensor ", quote(name), " has not the sizes that the cache of the metadata would have");
        }
        Tensor tensor = file_.load(name);
        if (tensor.dtype() != dtype) refuse(": tensor ", quote(name), " is ", tensor.dtype(), ", not ", dtype);
        return tensor;
    }

    void check_memory(const KvCacheConfig& config) const {
        std::int64_t bytes = 0;
        try {
            const BlockLayout layout(config);
            const std::int64_t lists = checked_multiply(config.batch, layout.blocks_per_sequence, "pages");
            const std::int64_t blocks = config.kind != CacheKind::paged ? config.batch
                                        : config.pages > 0              ? config.pages
                                                                        : lists;
            const std::int64_t of_rows = checked_multiply(blocks, layout.bytes, "rows");
            const std::int64_t of_lists =
                checked_multiply(std::max(lists, std::max(blocks, config.batch)), 64, "lists");
            if (__builtin_add_overflow(of_rows, of_lists, &bytes)) refuse(": the cache fits in no memory");
        } catch (const Error& error) {
            refuse(": the metadata is no cache: ", error.what());
        }
        if (bytes > limits_.cache_bytes) {
            refuse(": the cache would take ", bytes, " bytes, over the limit of ", limits_.cache_bytes,
                   " (FileLimits::cache_bytes)");
        }
    }

    void set_lengths(const KvCache::Impl& cache, std::int64_t b, std::int64_t length, std::int64_t first) {
        const KvCacheConfig& c = cache.config;
        const bool ring = c.kind == CacheKind::ring;
        const std::int64_t held = first == 0 ? c.capacity : c.capacity - c.keep_first;
        constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 2;
        const bool fits = length >= 0 && length <= kMost && first >= 0 && first <= length &&
                          (ring || first == 0) && length - first <= held &&
                          (first == 0 || first > c.keep_first - 1);
        if (!fits) {
            refuse(": sequence ", b, " holds keys from ", first, " to ", length, ", which a cache of ", c.capacity,
                   " cannot");
        }
        lengths_.push_back({.length = length, .first = first});
    }

    // Gives every sequence its blocks: shared ones once from the pool.
    std::vector<StoredBlock> load_blocks(KvCache::Impl& cache,
                                         const std::vector<KvCache::Impl::Sequence>& sequences) const {
        std::int64_t count = 0;
        for (const auto& sequence : sequences) count += cache.blocks_for(sequence.length);
        const Tensor list = load("blocks", DType::i32, {count});
        const std::int32_t* next = list.data<std::int32_t>();
        std::vector<StoredBlock> blocks;
        for (std::int64_t b = 0; b < cache.config.batch; ++b) {
            const std::int64_t length = sequences[static_cast<std::size_t>(b)].length;
            for (std::int64_t n = 0; n < cache.blocks_for(length); ++n, ++next) {
                place_block(cache, b, n, *next, blocks);
                StoredBlock& block = blocks[static_cast<std::size_t>(*next)];
                block.rows = std::max(block.rows, filled(cache, length, n));
            }
        }
        return blocks;
    }

    void place_block(KvCache::Impl& cache, std::int64_t b, std::int64_t n, std::int32_t number,
                     std::vector<StoredBlock>& blocks) const {
        const auto known = static_cast<std::int64_t>(blocks.size());
        const bool paged = cache.config.kind == CacheKind::paged;
        if (number < 0 || number > known || (!paged && number != known)) {
            refuse(": block ", number, " of sequence ", b, " where at most ", known, " may follow");
        }
        std::int32_t& entry = cache.blocks_of(b)[n];
        if (number < known) {
            entry = blocks[static_cast<std::size_t>(number)].id;
            return cache.pool->share(entry);
        }
        std::int32_t id = entry;
        if (paged && !cache.pool->take({&id, 1}))
            refuse(": more pages than the ", cache.pool->count(), " of its pool");
        entry = id;
        blocks.push_back({.id = id, .rows = 0});
    }

    const std::string path_;
    const FileLimits limits_;
    const TensorFile file_;
    std::vector<KvCache::Impl::Sequence> lengths_;
};

}  // namespace

void save_cache(const std::string& path, const KvCache& cache) {
    const KvCache::Impl& impl = cache.impl();
    Tensor lengths(DType::i64, {impl.config.batch}), first(DType::i64, {impl.config.batch});
    std::vector<std::int32_t> list;
    std::vector<StoredBlock> blocks;
    std::map<std::int32_t, std::int32_t> numbers;
    for (std::int64_t b = 0; b < impl.config.batch; ++b) {
        const std::int64_t length = impl.at(b).length;
        lengths.data<std::int64_t>()[b] = length, first.data<std::int64_t>()[b] = impl.at(b).first;
        for (std::int64_t n = 0; n < impl.blocks_for(length); ++n) {
            const std::int32_t id = impl.blocks_of(b)[n];
            const auto [number, is_new] = numbers.try_emplace(id, static_cast<std::int32_t>(blocks.size()));
            if (is_new) blocks.push_back({.id = id, .rows = 0});
            StoredBlock& block = blocks[static_cast<std::size_t>(number->second)];
            block.rows = std::max(block.rows, filled(impl, length, n));
            list.push_back(number->second);
        }
    }
    std::vector<std::pair<std::string, ConstTensorView>> tensors = {
        {"lengths", lengths},
        {"first", first},
        {"blocks", ConstTensorView(list.data(), DType::i32, {static_cast<std::int64_t>(list.size())})}};
    std::vector<Tensor> rows;
    for (const Part& part : parts_of(impl)) {
        Tensor& tensor = rows.emplace_back(part.dtype, sizes_of(part, rows_of(impl, blocks)));
        for_rows(impl, blocks, part, tensor.data<std::byte>(),
                 [](const void* held, void* stored, std::size_t bytes) { std::memcpy(stored, held, bytes); });
        tensors.emplace_back(part.name, tensor);
    }
    save_safetensors(path, tensors, text_of(impl.config));
}

KvCache load_cache(const std::string& path, const FileLimits& limits) {
    return with_memory([&] { return CacheReader(path, limits).read(); });
}

}  // namespace headwise
