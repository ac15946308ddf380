#include "heads/rope_table.h"

#include <cmath>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "core/check.h"

namespace headwise {

void fill_angles(const double* frequencies, std::int64_t half, double multiplier, std::int64_t position,
                 float* to) noexcept {
    for (std::int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(position) * frequencies[i];
        to[i] = static_cast<float>(multiplier * std::cos(angle));
        to[half + i] = static_cast<float>(multiplier * std::sin(angle));
    }
}

std::shared_ptr<const RopeTable> RopeTable::shared(const RopeFrequencies& numbers) {
    static std::mutex mutex;
    static std::map<std::vector<double>, std::weak_ptr<const RopeTable>> tables;
    std::vector<double> key = numbers.frequencies;
    key.push_back(numbers.multiplier);
    const std::lock_guard lock(mutex);
    std::erase_if(tables, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<const RopeTable>& slot = tables[std::move(key)];
    std::shared_ptr<const RopeTable> table = slot.lock();
    if (table == nullptr) slot = table = std::make_shared<const RopeTable>(numbers);
    return table;
}

RopeTable::RopeTable(const RopeFrequencies& numbers) : numbers_(numbers) {}

RopeTable::~RopeTable() {
    for (const auto& page : pages_) delete[] page.load();
}

void RopeTable::fill(std::int64_t position, float* to) const noexcept {
    fill_angles(numbers_.frequencies.data(), half(), numbers_.multiplier, position, to);
}

const float* RopeTable::page(std::size_t index) const {
    float* made = pages_[index].load(std::memory_order_acquire);
    if (made != nullptr) return made;
    const std::int64_t row = 2 * half();
    std::unique_ptr<float[]> fresh(new (std::nothrow) float[static_cast<std::size_t>(kPageRows * row)]);
    if (fresh == nullptr) fail(ErrorCode::out_of_memory, "rope: no memory for ", kPageRows, " positions");
    for (std::int64_t i = 0; i < kPageRows; ++i) {
        fill(static_cast<std::int64_t>(index) * kPageRows + i, fresh.get() + i * row);
    }
    // Two threads may make the same page; the first one stays.
    if (pages_[index].compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel))
        return fresh.release();
    return made;
}

const float* RopeTable::find(std::int64_t position) const {
    if (position < 0 || position >= kPages * kPageRows) return nullptr;
    return page(static_cast<std::size_t>(position / kPageRows)) + position % kPageRows * 2 * half();
}

}  // namespace headwise
