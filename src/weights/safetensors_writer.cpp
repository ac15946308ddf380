#include <algorithm>
#include <array>
#include <set>

#include <headwise/weights.h>

#include "core/check.h"
#include "core/storage.h"
#include "weights/elements.h"
#include "weights/file.h"
#include "weights/json.h"
#include "weights/quote.h"
#include "weights/safetensors_header.h"

namespace headwise {
namespace {

constexpr std::size_t kAlignHeader = 8;          // of the data in the file, which mapped readers rely on
constexpr std::size_t kMaxHeader = 100'000'000;  // what other readers of the format accept

using Named = std::pair<std::string, ConstTensorView>;

void check_tensors(const std::vector<Named>& tensors) {
    std::set<std::string_view> names;
    for (const auto& [name, view] : tensors) {
        check(name != "__metadata__", "save_safetensors: '__metadata__' is not a name that a tensor may have");
        check(names.insert(name).second, "save_safetensors: two tensors are named ", quote(name));
        check_writable(view, "save_safetensors");
    }
}

// Wide elements first, so that every tensor stands at a multiple of its element size; by name among equals.
std::vector<const Named*> file_order(const std::vector<Named>& tensors) {
    std::vector<const Named*> order;
    for (const Named& tensor : tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
        const auto width_a = size_of(a->second.dtype), width_b = size_of(b->second.dtype);
        return width_a != width_b ? width_a > width_b : a->first < b->first;
    });
    return order;
}

std::string header_text(const std::vector<const Named*>& order,
                        const std::map<std::string, std::string>& metadata) {
    std::string json = "{";
    if (!metadata.empty()) {
        std::string pairs;
        for (const auto& [key, value] : metadata) {
            pairs += text(pairs.empty() ? "" : ",", json_string(key), ":", json_string(value));
        }
        json += "\"__metadata__\":{" + pairs + "}";
    }
    std::int64_t at = 0;
    for (const Named* tensor : order) {
        const ConstTensorView& view = tensor->second;
        std::string shape;
        for (int axis = 0; axis < view.rank; ++axis) shape += text(axis > 0 ? "," : "", view.size(axis));
        const auto bytes =
            checked_multiply(view.count(), static_cast<std::int64_t>(size_of(view.dtype)), "save_safetensors");
        json += text(json.size() > 1 ? "," : "", json_string(tensor->first), ":{\"dtype\":\"",
                     stored_name_of(view.dtype), "\",\"shape\":[", shape, "],\"data_offsets\":[", at, ",",
                     at + bytes, "]}");
        at += bytes;
    }
    json += "}";
    json.resize((json.size() + kAlignHeader - 1) / kAlignHeader * kAlignHeader, ' ');
    check(json.size() <= kMaxHeader, "save_safetensors: the header would have ", json.size(),
          " bytes; the format ends at ", kMaxHeader);
    return json;
}

}  // namespace

void save_safetensors(const std::string& path, const std::vector<Named>& tensors,
                      const std::map<std::string, std::string>& metadata) {
    check_tensors(tensors);
    const auto order = file_order(tensors);
    const std::string json = header_text(order, metadata);

    OutputFile file(path);
    std::array<unsigned char, 8> length{};
    for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<unsigned char>(json.size() >> (8 * i));
    file.write(length.data(), length.size());
    file.write(json);
    for (const Named* tensor : order) write_elements(file, tensor->second);
    file.commit();
}

}  // namespace headwise
