// Caches as files: bit for bit what was saved, and nothing believed that a file says.
#include <headwise/weights.h>

#include "cache_cases.h"
#include "file_support.h"
#include "safetensors_support.h"

namespace headwise::test {
namespace {

using testing_support::TempDir;

KvCacheConfig config_of(CacheKind kind, CacheType type) {
    KvCacheConfig config{
        .batch = 3, .kv_heads = 2, .key_dim = 7, .value_dim = 5, .capacity = 20, .kind = kind, .type = type};
    config.page_size = 3, config.pages = 30, config.scale_group = 4;
    if (kind == CacheKind::ring) config.keep_first = 2;
    return config;
}

bool same_bits(const Tensor& a, const Tensor& b) {
    return a.count() == b.count() && std::memcmp(a.view().data, b.view().data,
                                                 static_cast<std::size_t>(a.count()) * size_of(a.dtype())) == 0;
}

void expect_same(const KvCache& a, const KvCache& b) {
    EXPECT_EQ(a.free_pages(), b.free_pages());
    EXPECT_EQ(a.bytes(), b.bytes());
    for (std::int64_t n = 0; n < a.config().batch; ++n) {
        ASSERT_EQ(a.length(n), b.length(n));
        ASSERT_EQ(a.first_key(n), b.first_key(n));
        const std::int64_t first = a.first_key(n), count = a.length(n) - first;
        EXPECT_TRUE(same_bits(a.keys(n, first, count), b.keys(n, first, count)));
        EXPECT_TRUE(same_bits(a.values(n, first, count), b.values(n, first, count)));
        const std::int64_t kept = std::min(a.config().keep_first, a.length(n));
        EXPECT_TRUE(same_bits(a.keys(n, 0, kept), b.keys(n, 0, kept)));
    }
}

// A cache with uneven lengths, shared pages, a rolled back end.
KvCache used_cache(const KvCacheConfig& config) {
    KvCache cache(config);
    const std::int64_t counts[] = {9, 0, 4};
    Tokens(config, 9, 1).append_to(cache, ConstTensorView(counts, DType::i64, {3}));
    cache.reorder({0, 0, 2});
    Tokens(config, 3, 2).append_to(cache);
    cache.truncate(0, 11);
    return cache;
}

TEST(CacheFile, EveryKindAndTypeBitForBit) {
    const NanMemory memory;
    const TempDir dir;
    for (const CacheKind kind : kKinds) {
        for (const CacheType type : kTypes) {
            for (const bool value_in_key : {false, true}) {
                KvCacheConfig config = config_of(kind, type);
                config.value_in_key = value_in_key;
                KvCache cache = used_cache(config);
                save_cache(dir / "cache", cache);
                KvCache loaded = load_cache(dir / "cache");
                expect_same(cache, loaded);
                // And they go on alike: the same pages are shared, the same room is left.
                for (unsigned n = 0; n < 3; ++n) {
                    const Tokens more(config, 2, 10 + n);
                    more.append_to(cache), more.append_to(loaded);
                    expect_same(cache, loaded);
                }
                // The file of the loaded cache is the same file.
                KvCache again = used_cache(config);
                save_cache(dir / "again", again);
                save_cache(dir / "loaded", load_cache(dir / "again"));
                EXPECT_EQ(testing_support::get_file(dir / "again"), testing_support::get_file(dir / "loaded"));
            }
        }
    }
}

TEST(CacheFile, RingsThatHaveGoneRound) {
    const NanMemory memory;
    const TempDir dir;
    const KvCacheConfig config = config_of(CacheKind::ring, CacheType::f32);
    KvCache cache(config);
    for (unsigned n = 0; n < 7; ++n) {
        Tokens(config, 8, n).append_to(cache);
        if (n > 2) cache.truncate(1, cache.length(1) - 3);
        save_cache(dir / "ring", cache);
        expect_same(cache, load_cache(dir / "ring"));
    }
}

TEST(CacheFile, EmptyCaches) {
    const TempDir dir;
    for (const CacheKind kind : kKinds) {
        KvCacheConfig config = config_of(kind, CacheType::int4);
        save_cache(dir / "empty", KvCache(config));
        expect_same(KvCache(config), load_cache(dir / "empty"));
        config.batch = 0;
        save_cache(dir / "none", KvCache(config));
        EXPECT_EQ(load_cache(dir / "none").config().batch, 0);
    }
}

// ---- hostile files -------------------------------------------------------------------------------------------

// The parts of a saved cache, to be changed and written again.
struct Parts {
    std::map<std::string, std::string> metadata;
    std::map<std::string, Tensor> tensors;

    Parts(const TempDir& dir, CacheKind kind, CacheType type = CacheType::f32) {
        save_cache(dir / "good", used_cache(config_of(kind, type)));
        const TensorFile file(dir / "good");
        metadata = file.metadata();
        for (const std::string& name : file.names()) tensors.emplace(name, file.load(name));
    }
    std::int64_t* lengths() { return tensors.at("lengths").data<std::int64_t>(); }
    std::int64_t* first() { return tensors.at("first").data<std::int64_t>(); }
    std::int32_t* blocks() { return tensors.at("blocks").data<std::int32_t>(); }

    std::string load(const TempDir& dir, const FileLimits& limits = {}) const {
        std::vector<std::pair<std::string, ConstTensorView>> list;
        for (const auto& [name, tensor] : tensors) list.emplace_back(name, tensor.view());
        save_safetensors(dir / "bad", list, metadata);
        return message_of(ErrorCode::bad_data, [&] { load_cache(dir / "bad", limits); });
    }
};

void expect_refused(const std::string& words, CacheKind kind, const std::function<void(Parts&)>& breaks) {
    const TempDir dir;
    Parts parts(dir, kind);
    EXPECT_EQ(parts.load(dir), "accepted");
    breaks(parts);
    const std::string message = parts.load(dir);
    EXPECT_NE(message.find(words), std::string::npos) << message << "\n  lacks: " << words;
    EXPECT_NE(message.find("/bad: "), std::string::npos) << message;
}

TEST(CacheFileHostile, Metadata) {
    const CacheKind kind = CacheKind::paged;
    expect_refused("no format", kind, [](Parts& p) { p.metadata.clear(); });
    expect_refused("format 'other'", kind, [](Parts& p) { p.metadata["format"] = "other"; });
    expect_refused("version '2'", kind, [](Parts& p) { p.metadata["version"] = "2"; });
    for (const auto& [name, value] : std::map(Parts(TempDir(), kind).metadata)) {
        if (name == "format" || name == "version") continue;
        const std::string& field = name;
        expect_refused("no " + field, kind, [&](Parts& p) { p.metadata.erase(field); });
        for (const char* bad : {"", "x", "-1", "1.5", " 1", "99999999999999999999"}) {
            expect_refused(field + " of the cache is", kind, [&](Parts& p) { p.metadata[field] = bad; });
        }
    }
    expect_refused("kind of the cache is '3'", kind, [](Parts& p) { p.metadata["kind"] = "3"; });
    expect_refused("type of the cache is '5'", kind, [](Parts& p) { p.metadata["type"] = "5"; });
    expect_refused("value_in_key of the cache is '2'", kind, [](Parts& p) { p.metadata["value_in_key"] = "2"; });
    expect_refused("the metadata is no cache", kind, [](Parts& p) { p.metadata["page_size"] = "0"; });
    expect_refused("the metadata is no cache", kind, [](Parts& p) { p.metadata["keep_first"] = "1"; });
    expect_refused("the metadata is no cache", kind, [](Parts& p) { p.metadata["key_dim"] = "0"; });
}

// Sizes that no file stands behind are refused before memory is asked for.
TEST(CacheFileHostile, Sizes) {
    const std::string huge = "9000000000000000000", large = "1000000000000";
    for (const char* field : {"batch", "kv_heads", "key_dim", "value_dim", "capacity", "pages", "page_size"}) {
        for (const std::string& size : {huge, large}) {
            const TempDir dir;
            Parts parts(dir, CacheKind::paged);
            parts.metadata[field] = size;
            const NanMemory memory;
            EXPECT_NE(parts.load(dir), "accepted") << field;
        }
    }
    const TempDir dir;
    const Parts parts(dir, CacheKind::contiguous);
    EXPECT_NE(parts.load(dir, {.cache_bytes = 1000}).find("over the limit of 1000 (FileLimits::cache_bytes)"),
              std::string::npos);
    expect_refused("has not the sizes", CacheKind::paged, [](Parts& p) { p.metadata["batch"] = "4"; });
    expect_refused("has not the sizes", CacheKind::paged, [](Parts& p) { p.metadata["key_dim"] = "8"; });
    expect_refused("has not the sizes", CacheKind::paged, [](Parts& p) { p.metadata["kv_heads"] = "1"; });
    expect_refused("is i32, not f32", CacheKind::paged, [](Parts& p) {
        Tensor& keys = p.tensors.at("keys");
        Tensor other(DType::i32, {keys.size(0), keys.size(1)});
        keys = std::move(other);
    });
    for (const char* name : {"lengths", "first", "blocks", "keys", "values"}) {
        expect_refused("no tensor", CacheKind::contiguous, [&](Parts& p) { p.tensors.erase(name); });
    }
    expect_refused("besides those of a cache", CacheKind::ring,
                   [](Parts& p) { p.tensors.emplace("more", Tensor(DType::f32, {1})); });
}

TEST(CacheFileHostile, LengthsAndBlocks) {
    expect_refused("sequence 0 holds keys from 0 to 21", CacheKind::contiguous,
                   [](Parts& p) { p.lengths()[0] = 21; });
    expect_refused("sequence 1 holds keys from 0 to -1", CacheKind::paged, [](Parts& p) { p.lengths()[1] = -1; });
    expect_refused("sequence 0 holds keys from 1", CacheKind::contiguous, [](Parts& p) { p.first()[0] = 1; });
    expect_refused("sequence 2 holds keys from 8 to 7", CacheKind::ring, [](Parts& p) { p.first()[2] = 8; });
    expect_refused("sequence 0 holds keys from 0 to 21", CacheKind::ring, [](Parts& p) { p.lengths()[0] = 21; });
    expect_refused("sequence 0 holds keys from 1", CacheKind::ring, [](Parts& p) { p.first()[0] = 1; });
    expect_refused("has not the sizes", CacheKind::paged, [](Parts& p) { p.lengths()[1] = 3; });
    expect_refused("block -1", CacheKind::paged, [](Parts& p) { p.blocks()[2] = -1; });
    expect_refused("block 3", CacheKind::paged, [](Parts& p) { p.blocks()[2] = 3; });
    expect_refused("block 0 of sequence 1", CacheKind::contiguous, [](Parts& p) { p.blocks()[1] = 0; });
    expect_refused("more pages than the 5 of its pool", CacheKind::paged,
                   [](Parts& p) { p.metadata["pages"] = "5"; });
}

// Whatever single byte is changed, or wherever the file ends: a cache or an Error, never a crash.
TEST(CacheFileHostile, AnyByte) {
    const TempDir dir;
    for (const CacheKind kind : {CacheKind::paged, CacheKind::ring}) {
        KvCacheConfig config = config_of(kind, CacheType::int8);
        config.batch = 3, config.kv_heads = 1, config.key_dim = 2, config.value_dim = 1;
        save_cache(dir / "good", used_cache(config));
        const std::string good = testing_support::get_file(dir / "good");
        std::int64_t refused = 0;
        const auto load = [&](const std::string& bytes) {
            testing_support::put_file(dir / "bad", bytes);
            try {
                const KvCache cache = load_cache(dir / "bad", {.cache_bytes = 1 << 24});
            } catch (const Error& error) {
                EXPECT_TRUE(error.code() == ErrorCode::bad_data || error.code() == ErrorCode::unsupported)
                    << error.what();
                ++refused;
            }
        };
        for (std::size_t at = 0; at < good.size(); ++at) {
            for (const char change : {'\x01', '\x80'}) {
                std::string bad = good;
                bad[at] = static_cast<char>(bad[at] ^ change);
                load(bad);
            }
        }
        for (std::size_t size = 0; size < good.size(); size += 7) load(good.substr(0, size));
        EXPECT_GT(refused, static_cast<std::int64_t>(good.size()));
    }
}

TEST(CacheFile, AFileThatCannotBeWritten) {
    const TempDir dir;
    message_of(ErrorCode::io, [&] {
        save_cache(dir / "no" + "/such/place", KvCache(config_of(CacheKind::ring, CacheType::f32)));
    });
    message_of(ErrorCode::io, [&] { load_cache(dir / "missing"); });
    EXPECT_TRUE(dir.list().empty());
}

}  // namespace
}  // namespace headwise::test
