#include "weights/shard_index.h"

#include <set>
#include <utility>

#include "core/check.h"
#include "weights/json.h"
#include "weights/quote.h"

namespace headwise {
namespace {

// Only the strings of the top-level object "weight_map" matter. "metadata" holds sums for people (total_size), which
// are often stale in published files.
class IndexReader final : public JsonHandler {
public:
    IndexReader(const FileLimits& limits, const std::string& where) : limits_(limits), where_(where) {}

    WeightMap map;
    bool found = false;

    void null() override { scalar("null"); }
    void boolean(bool) override { scalar("true or false"); }
    void integer(std::int64_t) override { scalar("a number"); }
    void number(double) override { scalar("a number"); }

    void string(std::string& value) override {
        if (!in_map() || level_ != 2) return scalar("a string");
        check_shard(value);
        shards_.insert(value);
        if (static_cast<std::int64_t>(shards_.size()) > limits_.shards) {
            bad("more shards than the limit of ", limits_.shards, " (FileLimits::shards)");
        }
        if (static_cast<std::int64_t>(map.size()) >= limits_.tensors) {
            bad("more tensors than the limit of ", limits_.tensors, " (FileLimits::tensors)");
        }
        map.emplace(std::move(name_), std::move(value));
    }

    void key(std::string& name) override {
        if (level_ == 1) section_ = name;
        if (!in_map() || level_ != 2) return;
        if (static_cast<std::int64_t>(name.size()) > limits_.name_bytes) {
            bad("the name ", quote(name), " is over the limit of ", limits_.name_bytes,
                " bytes (FileLimits::name_bytes)");
        }
        name_ = std::move(name);
    }

    void begin_object() override {
        if (in_map() && level_ >= 2) scalar("an object");
        if (in_map()) found = true;
        ++level_;
    }
    void end_object() override { --level_; }

    void begin_array() override {
        if (level_ == 0 || in_map()) scalar("a list");
        ++level_;
    }
    void end_array() override { --level_; }

private:
    template <class... Parts>
    [[noreturn]] void bad(const Parts&... parts) const {
        fail(ErrorCode::bad_data, where_, ": ", parts...);
    }

    bool in_map() const { return level_ >= 1 && section_ == "weight_map"; }

    void scalar(const char* what) const {
        if (level_ == 0) bad("the index is ", what, ", not an object");
        if (in_map() && level_ == 1) bad("weight_map is ", what, ", not an object");
        if (in_map()) bad("weight_map gives ", what, " for tensor ", quote(name_), ", not a file name");
    }

    void check_shard(const std::string& shard) const {
        if (!shard.ends_with(".safetensors") || shard.find('/') != std::string::npos ||
            shard.find('\\') != std::string::npos || shard.find('\0') != std::string::npos) {
            bad("weight_map gives the shard ", quote(shard), " for tensor ", quote(name_),
                "; expected a plain file name that ends in .safetensors, without a path");
        }
    }

    const FileLimits& limits_;
    const std::string& where_;
    int level_ = 0;
    std::string section_, name_;
    std::set<std::string> shards_;
};

}  // namespace

WeightMap parse_shard_index(std::string_view json, const FileLimits& limits, const std::string& where) {
    IndexReader reader(limits, where);
    parse_json(json, limits.json_depth, where, reader);
    if (!reader.found) fail(ErrorCode::bad_data, where, ": the object \"weight_map\" is missing");
    return std::move(reader.map);
}

}  // namespace headwise
