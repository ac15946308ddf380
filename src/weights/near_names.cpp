#include "weights/near_names.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {
namespace {

constexpr std::size_t kShown = 10;

// Linear in the length: files may hold a million long names.
std::size_t likeness(std::string_view a, std::string_view b) {
    const std::size_t shorter = std::min(a.size(), b.size());
    std::size_t head = 0, tail = 0;
    while (head < shorter && a[head] == b[head]) ++head;
    while (tail < shorter - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
    return head + tail;
}

}  // namespace

std::string describe_near_names(std::string_view name, std::vector<std::string> names) {
    if (names.empty()) return "it holds no tensors";
    const std::size_t total = names.size();
    if (total > kShown) {
        std::vector<std::pair<std::size_t, std::size_t>> ranks;  // (likeness, index)
        for (std::size_t i = 0; i < total; ++i) ranks.emplace_back(likeness(name, names[i]), i);
        std::partial_sort(ranks.begin(), ranks.begin() + kShown, ranks.end(), [](const auto& a, const auto& b) {
            return a.first != b.first ? a.first > b.first : a.second < b.second;
        });
        std::vector<std::string> nearest;
        for (std::size_t i = 0; i < kShown; ++i) nearest.push_back(std::move(names[ranks[i].second]));
        names = std::move(nearest);
    }
    std::string result = total > kShown ? text("of its ", total, " tensors the nearest are ") : "it holds ";
    for (std::size_t i = 0; i < names.size(); ++i) result += (i == 0 ? "" : ", ") + quote(names[i]);
    return result;
}

}  // namespace headwise
