#include "weights/safetensors_header.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "weights/elements.h"
#include "weights/json.h"
#include "weights/quote.h"

namespace headwise {
namespace {

constexpr std::array kStoredTypes = {
    StoredType{"F32", 32, DType::f32},
    StoredType{"BF16", 16, DType::bf16},
    StoredType{"F16", 16, DType::f16},
    StoredType{"F64", 64, DType::f64},
    StoredType{"I32", 32, DType::i32},
    StoredType{"I64", 64, DType::i64},
    StoredType{"BOOL", 8, DType::boolean},
    StoredType{"U8", 8, {}},
    StoredType{"I8", 8, {}},
    StoredType{"U16", 16, {}},
    StoredType{"I16", 16, {}},
    StoredType{"U32", 32, {}},
    StoredType{"U64", 64, {}},
    StoredType{"C64", 64, {}},
    StoredType{"F8_E4M3", 8, {}},
    StoredType{"F8_E5M2", 8, {}},
    StoredType{"F8_E8M0", 8, {}},
    StoredType{"F8_E4M3FNUZ", 8, {}},
    StoredType{"F8_E5M2FNUZ", 8, {}},
    StoredType{"F6_E2M3", 6, {}},
    StoredType{"F6_E3M2", 6, {}},
    StoredType{"F4", 4, {}},
};

std::string list(const std::vector<std::int64_t>& values) {
    std::string result = "[";
    for (const std::int64_t value : values) result += (result.size() > 1 ? ", " : "") + std::to_string(value);
    return result + "]";
}

// Level 1 of the JSON holds tensor names and "__metadata__", level 2 the fields of one of them, level 3 the numbers
// of a shape or of data_offsets.
class HeaderReader final : public JsonHandler {
public:
    HeaderReader(const FileLimits& limits, const std::string& where) : limits_(limits), where_(where) {}

    SafetensorsHeader header;

    void null() override { reject("null"); }
    void boolean(bool) override { reject("true or false"); }
    void number(double) override { reject("a number that is not a whole number of at most 63 bits"); }

    void integer(std::int64_t value) override {
        if (level_ != 3 || value < 0) reject(value < 0 ? "a negative number" : "a number");
        if (field_ == "shape" && entry_.sizes.size() == kMaxRank) {
            bad(name_, ": more than ", kMaxRank, " dimensions");
        }
        (field_ == "shape" ? entry_.sizes : offsets_).push_back(value);
    }

    void string(std::string& value) override {
        if (level_ == 2 && in_metadata_) {
            header.metadata.emplace(field_, std::move(value));
        } else if (level_ == 2 && field_ == "dtype") {
            entry_.type = find_stored_type(value);
            if (entry_.type == nullptr) bad(name_, ": the format has no element type ", quote(value));
        } else {
            reject("a string");
        }
    }

    void key(std::string& name) override {
        if (level_ == 2) {
            field_ = std::move(name);
            return;
        }
        if (static_cast<std::int64_t>(name.size()) > limits_.name_bytes) {
            bad(name, ": a name of ", name.size(), " bytes is over the limit of ", limits_.name_bytes,
                " (FileLimits::name_bytes)");
        }
        name_ = std::move(name);
        in_metadata_ = name_ == "__metadata__";
    }

    void begin_object() override {
        if (level_ > 1) reject("an object");
        ++level_;
        entry_ = {};
        offsets_.clear();
        has_shape_ = false;
    }

    void end_object() override {
        --level_;
        if (level_ == 1 && !in_metadata_) finish_entry();
    }

    void begin_array() override {
        if (level_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets")) reject("a list");
        if (field_ == "shape") has_shape_ = true;
        ++level_;
    }

    void end_array() override { --level_; }

private:
    template <class... Parts>
    [[noreturn]] void bad(const std::string& tensor, const Parts&... parts) const {
        fail(ErrorCode::bad_data, where_, ": tensor ", quote(tensor), parts...);
    }

    [[noreturn]] void reject(const char* what) const {
        if (level_ == 0) fail(ErrorCode::bad_data, where_, ": the header is ", what, ", not an object");
        if (level_ == 1) bad(name_, " is ", what, ", not an object");
        bad(name_, ": field ", quote(field_), " holds ", what, ", which does not belong there");
    }

    void finish_entry() {
        if (entry_.type == nullptr || !has_shape_ || offsets_.size() != 2) {
            bad(name_, ": needs the fields dtype, shape and data_offsets (two numbers)");
        }
        entry_.begin = offsets_[0];
        entry_.end = offsets_[1];
        check_span();
        if (static_cast<std::int64_t>(header.tensors.size()) >= limits_.tensors) {
            fail(ErrorCode::bad_data, where_, ": more tensors than the limit of ", limits_.tensors,
                 " (FileLimits::tensors)");
        }
        header.tensors.emplace(std::move(name_), std::move(entry_));
    }

    void check_span() const {
        const auto bits = total_bits(entry_.type->bits, entry_.sizes);
        if (!bits) bad(name_, ": shape ", list(entry_.sizes), " is larger than any memory");
        if (*bits % 8 != 0) {
            bad(name_, ": ", entry_.type->name, " ", list(entry_.sizes), " is not a whole number of bytes");
        }
        if (entry_.end < entry_.begin || entry_.end - entry_.begin != *bits / 8) {
            bad(name_, ": data_offsets [", entry_.begin, ", ", entry_.end, "] do not span the ", *bits / 8,
                " bytes of ", entry_.type->name, " ", list(entry_.sizes));
        }
    }

    const FileLimits& limits_;
    const std::string& where_;
    int level_ = 0;
    bool in_metadata_ = false, has_shape_ = false;
    std::string name_, field_;
    HeaderEntry entry_;
    std::vector<std::int64_t> offsets_;
};

void check_cover(const SafetensorsHeader& header, std::int64_t data_bytes, const std::string& where) {
    using Item = std::pair<const std::string, HeaderEntry>;
    std::vector<const Item*> order;
    order.reserve(header.tensors.size());
    for (const Item& item : header.tensors) order.push_back(&item);
    std::sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
        return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
    });
    std::int64_t at = 0;
    for (const Item* item : order) {
        const auto& [name, entry] = *item;
        if (entry.end > data_bytes) {
            fail(ErrorCode::bad_data, where, ": tensor ", quote(name), " ends at byte ", entry.end,
                 " of the data, but the file holds only ", data_bytes, "; it was cut short or its header lies");
        }
        if (entry.begin != at) {
            fail(ErrorCode::bad_data, where, ": tensor ", quote(name), " begins at byte ", entry.begin,
                 " of the data, ", entry.begin < at ? "inside the tensor before it" : "after a hole",
                 "; expected ", at);
        }
        at = entry.end;
    }
    if (at != data_bytes) {
        fail(ErrorCode::bad_data, where, ": the tensors end at byte ", at, " of the data, but ", data_bytes - at,
             " more bytes follow");
    }
}

}  // namespace

const StoredType* find_stored_type(std::string_view name) noexcept {
    const auto at = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                 [&](const StoredType& type) { return type.name == name; });
    return at == kStoredTypes.end() ? nullptr : &*at;
}

std::string_view stored_name_of(DType dtype) noexcept {
    const auto at = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                 [&](const StoredType& type) { return type.loaded == dtype; });
    return at == kStoredTypes.end() ? "?" : at->name;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const FileLimits& limits, const std::string& where) {
    if (!json.starts_with('{')) fail(ErrorCode::bad_data, where, ": the header does not begin with '{'");
    HeaderReader reader(limits, where);
    parse_json(json, limits.json_depth, where, reader);
    check_cover(reader.header, data_bytes, where);
    return std::move(reader.header);
}

}  // namespace headwise
