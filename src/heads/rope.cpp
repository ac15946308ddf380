#include "heads/rope.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "kernels/storage_of.h"

namespace headwise {

std::shared_ptr<const RopeTable> RopeTable::shared(double theta, std::int64_t head_dim) {
    static std::mutex mutex;
    static std::map<std::pair<double, std::int64_t>, std::weak_ptr<const RopeTable>> tables;
    const std::lock_guard lock(mutex);
    std::weak_ptr<const RopeTable>& slot = tables[{theta, head_dim}];
    std::shared_ptr<const RopeTable> table = slot.lock();
    if (table == nullptr) slot = table = std::make_shared<const RopeTable>(theta, head_dim);
    return table;
}

RopeTable::RopeTable(double theta, std::int64_t head_dim) : theta_(theta), half_(head_dim / 2) {}

RopeTable::~RopeTable() {
    for (const auto& page : pages_) delete[] page.load();
}

void RopeTable::fill(std::int64_t position, float* to) const noexcept {
    for (std::int64_t i = 0; i < half_; ++i) {
        const double frequency = std::pow(theta_, -static_cast<double>(i) / static_cast<double>(half_));
        const double angle = static_cast<double>(position) * frequency;
        to[i] = static_cast<float>(std::cos(angle));
        to[half_ + i] = static_cast<float>(std::sin(angle));
    }
}

const float* RopeTable::page(std::size_t index) const {
    float* made = pages_[index].load(std::memory_order_acquire);
    if (made != nullptr) return made;
    std::unique_ptr<float[]> fresh(new (std::nothrow) float[static_cast<std::size_t>(kPageRows * 2 * half_)]);
    if (fresh == nullptr) fail(ErrorCode::out_of_memory, "rope: no memory for ", kPageRows, " positions");
    for (std::int64_t i = 0; i < kPageRows; ++i) {
        fill(static_cast<std::int64_t>(index) * kPageRows + i, fresh.get() + i * 2 * half_);
    }
    // Two threads may make the same page; the first one stays.
    if (pages_[index].compare_exchange_strong(made, fresh.get(), std::memory_order_acq_rel))
        return fresh.release();
    return made;
}

const float* RopeTable::find(std::int64_t position) const {
    if (position < 0 || position >= kPages * kPageRows) return nullptr;
    return page(static_cast<std::size_t>(position / kPageRows)) + position % kPageRows * 2 * half_;
}

namespace {

std::int64_t position_of(const ConstTensorView& positions, std::int64_t b, std::int64_t t) noexcept {
    if (positions.empty()) return t;
    const std::int64_t at =
        positions.rank == 2 ? b * positions.stride(0) + t * positions.stride(1) : t * positions.stride(0);
    return load_i64(positions.data, positions.dtype, at);
}

}  // namespace

void rotate(const KernelTable& kernels, const TensorView& heads, const RopeTable& table,
            const ConstTensorView& positions, const Execution& execution) {
    const std::int64_t tokens = heads.size(1), count = heads.size(0) * tokens, half = table.half();
    // Everything that may fail happens here, before the tasks: they only compute.
    const Scratch rows(static_cast<std::size_t>(count) * sizeof(const float*));
    auto** known = rows.data<const float*>();
    bool distant = false;
    for (std::int64_t i = 0; i < count; ++i) {
        known[i] = table.find(position_of(positions, i / tokens, i % tokens));
        distant = distant || known[i] == nullptr;
    }
    constexpr std::int64_t kPairsPerTask = 1 << 15;  // about 20 us, the price of waking a worker
    const std::int64_t rows_per_task =
        std::max<std::int64_t>(1, kPairsPerTask / std::max<std::int64_t>(1, heads.size(2) * half));
    const std::int64_t tasks = (count + rows_per_task - 1) / rows_per_task;
    const Scratch spare(distant ? static_cast<std::size_t>(tasks * 2 * half) * sizeof(float) : 0);

    const auto element = static_cast<std::int64_t>(size_of(heads.dtype));
    const Storage storage = storage_of(heads.dtype);
    parallel_for(execution, tasks, [&](std::int64_t task) {
        float* own = spare.data<float>() + (distant ? task * 2 * half : 0);
        for (std::int64_t i = task * rows_per_task; i < std::min(count, (task + 1) * rows_per_task); ++i) {
            const std::int64_t b = i / tokens, t = i % tokens;
            if (known[i] == nullptr) table.fill(position_of(positions, b, t), own);
            const float* cos = known[i] == nullptr ? own : known[i];
            auto* token =
                static_cast<std::byte*>(heads.data) + (b * heads.stride(0) + t * heads.stride(1)) * element;
            for (std::int64_t n = 0; n < heads.size(2); ++n) {
                kernels.rows.rotate_half(token + n * heads.stride(2) * element, storage, cos, cos + half, half);
            }
        }
    });
}

}  // namespace headwise
