#include <algorithm>
#include <array>
#include <utility>

#include <headwise/weights.h>

#include "core/check.h"
#include "weights/elements.h"
#include "weights/file.h"
#include "weights/gguf_file.h"
#include "weights/near_names.h"
#include "weights/quote.h"
#include "weights/safetensors_header.h"
#include "weights/shard_index.h"

namespace headwise {
namespace {

constexpr std::int64_t kLengthBytes = 8;  // of the field in front of the header

// One opened .safetensors file.
struct Shard {
    InputFile file;
    std::int64_t data_begin = 0;
    SafetensorsHeader header{};
};

Shard open_shard(InputFile file, const FileLimits& limits) {
    Shard shard{.file = std::move(file)};
    const std::string& path = shard.file.path();
    const std::int64_t size = shard.file.size();
    if (size < kLengthBytes) {
        fail(ErrorCode::bad_data, path, ": ", size, " bytes are too few for a safetensors file");
    }
    std::array<unsigned char, kLengthBytes> field{};
    shard.file.read(0, field.data(), kLengthBytes);
    std::uint64_t length = 0;
    for (std::size_t i = field.size(); i-- > 0;) length = length << 8 | field[i];
    if (length > static_cast<std::uint64_t>(size - kLengthBytes)) {
        fail(ErrorCode::bad_data, path, ": the header is said to have ", length, " bytes, but only ",
             size - kLengthBytes, " follow; the file was cut short or is not safetensors");
    }
    if (length > static_cast<std::uint64_t>(std::max<std::int64_t>(limits.header_bytes, 0))) {
        fail(ErrorCode::bad_data, path, ": a header of ", length, " bytes is over the limit of ",
             limits.header_bytes, " (FileLimits::header_bytes)");
    }
    std::string json(static_cast<std::size_t>(length), '\0');
    shard.file.read(kLengthBytes, json.data(), static_cast<std::int64_t>(length));
    shard.data_begin = kLengthBytes + static_cast<std::int64_t>(length);
    shard.header = parse_safetensors_header(json, size - shard.data_begin, limits, path);
    return shard;
}

// The file that `path` means.
std::string locate(const std::string& path) {
    if (!is_directory(path)) return path;
    for (const char* name : {"model.safetensors", "model.safetensors.index.json"}) {
        if (std::string file = path + "/" + name; path_exists(file)) return file;
    }
    fail(ErrorCode::io, path, ": the directory holds neither model.safetensors nor model.safetensors.index.json");
}

}  // namespace

struct TensorFile::Impl {
    struct Place {
        std::size_t shard = 0;
        HeaderEntry entry;
    };

    std::string path;
    std::vector<Shard> shards;  // headers are emptied: their entries move to `places`
    std::map<std::string, Place> places;
    std::optional<GgufFile> gguf;  // instead of shards
    std::map<std::string, std::string> metadata;

    void open_single(const FileLimits& limits);
    void open_index(const FileLimits& limits);
    const Place& place(const std::string& name) const;
};

void TensorFile::Impl::open_index(const FileLimits& limits) {
    const WeightMap map =
        parse_shard_index(InputFile(path).read_text(limits.header_bytes, "header_bytes"), limits, path);
    const std::string directory = path.substr(0, path.find_last_of('/') + 1);
    std::map<std::string, std::size_t> opened;
    for (const auto& [name, file] : map) {
        const auto [known, is_new] = opened.try_emplace(file, shards.size());
        if (is_new) shards.push_back(open_shard(InputFile(directory + file), limits));
        auto& tensors = shards[known->second].header.tensors;
        const auto found = tensors.find(name);
        if (found == tensors.end()) {
            fail(ErrorCode::bad_data, path, ": weight_map says that ", quote(file), " holds tensor ", quote(name),
                 ", but it does not");
        }
        places.emplace(name, Place{known->second, std::move(found->second)});
    }
    for (Shard& shard : shards) shard.header = {};
}

const TensorFile::Impl::Place& TensorFile::Impl::place(const std::string& name) const {
    if (const auto found = places.find(name); found != places.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& item : places) names.push_back(item.first);
    fail(ErrorCode::bad_data, path, ": no tensor ", quote(name), "; ",
         describe_near_names(name, std::move(names)));
}

void TensorFile::Impl::open_single(const FileLimits& limits) {
    InputFile file(path);
    if (is_gguf(file)) {
        gguf.emplace(std::move(file), limits);
        metadata = gguf->metadata_text();
        return;
    }
    shards.push_back(open_shard(std::move(file), limits));
    SafetensorsHeader& header = shards[0].header;
    for (auto& [name, entry] : header.tensors) places.emplace(name, Place{0, std::move(entry)});
    metadata = std::move(header.metadata);
    header = {};
}

TensorFile::TensorFile(const std::string& path, const FileLimits& limits) : impl_(std::make_unique<Impl>()) {
    impl_->path = locate(path);
    if (impl_->path.ends_with(".json")) {
        impl_->open_index(limits);
    } else {
        impl_->open_single(limits);
    }
}

TensorFile::~TensorFile() = default;
TensorFile::TensorFile(TensorFile&&) noexcept = default;
TensorFile& TensorFile::operator=(TensorFile&&) noexcept = default;

std::vector<std::string> TensorFile::names() const {
    std::vector<std::string> result;
    for (const auto& item : impl_->places) result.push_back(item.first);
    if (impl_->gguf) {
        for (const auto& item : impl_->gguf->header().tensors) result.push_back(item.first);
    }
    return result;
}

std::optional<TensorInfo> TensorFile::find(const std::string& name) const {
    if (impl_->gguf) {
        const GgufEntry* const entry = impl_->gguf->find(name);
        if (entry == nullptr) return std::nullopt;
        return TensorInfo{name, std::string(entry->type->name), entry->sizes};
    }
    const auto found = impl_->places.find(name);
    if (found == impl_->places.end()) return std::nullopt;
    const HeaderEntry& entry = found->second.entry;
    return TensorInfo{name, std::string(entry.type->name), entry.sizes};
}

const std::map<std::string, std::string>& TensorFile::metadata() const { return impl_->metadata; }

Tensor TensorFile::load(const std::string& name) const {
    if (impl_->gguf) return impl_->gguf->load(name);
    const auto& [at, entry] = impl_->place(name);
    const Shard& shard = impl_->shards[at];
    if (!entry.type->loaded) {
        fail(ErrorCode::unsupported, shard.file.path(), ": tensor ", quote(name), " is stored as ",
             entry.type->name, "; headwise loads F32, BF16, F16, F64, I32, I64 and BOOL");
    }
    Tensor tensor(*entry.type->loaded, entry.sizes);
    shard.file.read(shard.data_begin + entry.begin, tensor.view().data, entry.end - entry.begin);
    check_booleans(tensor, shard.file.path() + ": tensor " + quote(name));
    return tensor;
}

}  // namespace headwise
