#include "project/linear_plan.h"

#include <algorithm>
#include <atomic>

#include "core/dtype.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "kernels/storage_of.h"

namespace headwise {
namespace {

// Fewer multiply-adds than this (with some more counted for fetching each weight) take about 20 us: not worth waking a
// thread for.
constexpr double kWorkPerThread = 1 << 19;
constexpr std::int64_t kFetchCost = 3;
constexpr std::int64_t kTasksPerThread = 4;

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The grid of blocks: row_blocks x panel_blocks, spread evenly.
struct Plan {
    std::int64_t rows;  // of all batches
    std::int64_t row_blocks, panel_blocks;
    std::int64_t workers;
    bool copies_x;

    std::int64_t blocks() const { return row_blocks * panel_blocks; }
};

// Batches that follow each other at the distance of rows are one batch.
template <class AnyRows>
AnyRows flatten(AnyRows view) {
    if (view.rows == 1 && view.batches > 1) view.row_stride = view.batch_stride;
    if (view.batches == 1 || view.rows == 1 || view.batch_stride == view.rows * view.row_stride) {
        view.rows *= view.batches;
        view.batches = 1;
    }
    return view;
}

template <class AnyRows>
std::int64_t offset_of_row(const AnyRows& view, std::int64_t row) {
    if (view.batches == 1) return row * view.row_stride;
    return row / view.rows * view.batch_stride + row % view.rows * view.row_stride;
}

Plan make_plan(const LinearCall& call, const Execution& execution) {
    Plan plan{};
    plan.rows = call.x.batches * call.x.rows;
    const double work = static_cast<double>(plan.rows + kFetchCost) * static_cast<double>(call.panels) *
                        static_cast<double>(call.table.panel) * static_cast<double>(call.weights.k);
    const auto worth = static_cast<std::int64_t>(std::min(work / kWorkPerThread, 4096.0));
    const std::int64_t threads = worth < 2 ? 1 : std::min<std::int64_t>(thread_count(execution), worth);
    plan.row_blocks = ceil_of(plan.rows, kLinearRows);
    plan.panel_blocks = 1;
    if (threads > 1) {
        const std::int64_t wanted = threads * kTasksPerThread;
        if (plan.row_blocks < wanted) plan.panel_blocks = std::min(call.panels, ceil_of(wanted, plan.row_blocks));
        if (plan.panel_blocks == 1)
            plan.row_blocks = std::min(plan.rows, ceil_of(plan.row_blocks, threads) * threads);
    }
    plan.workers = std::min(threads, plan.blocks());
    plan.copies_x = call.x.dtype != DType::f32 || call.x.batches > 1 || plan.rows > call.table.tile_rows;
    return plan;
}

// Row `row` of x as f32.
void copy_row(const LinearCall& call, std::int64_t row, float* to) {
    const std::int64_t from = offset_of_row(call.x, row), k = call.weights.k;
    if (call.x.dtype == DType::f64) {
        const double* x = static_cast<const double*>(call.x.data) + from;
        for (std::int64_t i = 0; i < k; ++i) to[i] = static_cast<float>(x[i]);
        return;
    }
    const auto* x =
        static_cast<const std::byte*>(call.x.data) + from * static_cast<std::int64_t>(size_of(call.x.dtype));
    call.table.rows.widen(to, x, storage_of(call.x.dtype), k);
}

// One worker's part: blocks that it takes one by one, with its own copy of the rows at hand.
struct Worker {
    const LinearCall& call;
    const Plan& plan;
    float* scratch;  // of the kernel
    float* copy;     // [kLinearRows][x_stride]
    std::int64_t x_stride;
    std::int64_t copied = -1;  // row block

    void run(std::int64_t index) {
        const std::int64_t row_block = index / plan.panel_blocks, panel_block = index % plan.panel_blocks;
        const std::int64_t row = plan.rows * row_block / plan.row_blocks;
        const std::int64_t rows = plan.rows * (row_block + 1) / plan.row_blocks - row;
        const std::int64_t panel = call.panels * panel_block / plan.panel_blocks;
        const std::int64_t panels = call.panels * (panel_block + 1) / plan.panel_blocks - panel;
        if (plan.copies_x && copied != row_block) {
            for (std::int64_t i = 0; i < rows; ++i) copy_row(call, row + i, copy + i * x_stride);
            copied = row_block;
        }
        std::int64_t y_rows[kLinearRows];
        for (std::int64_t i = 0; i < rows; ++i) y_rows[i] = offset_of_row(call.y, row + i) - call.origin;
        call.table.linear.run_block({
            .weights = call.weights,
            .first = call.first + panel,
            .count = panels,
            .x = plan.copies_x ? copy : static_cast<const float*>(call.x.data) + row * call.x.row_stride,
            .x_stride = plan.copies_x ? x_stride : call.x.row_stride,
            .rows = rows,
            .y = call.y.data,
            .y_storage = storage_of(call.y.dtype),
            .y_rows = y_rows,
            .scratch = scratch,
        });
    }
};

}  // namespace

void run_linear(const LinearCall& given, const Execution& execution) {
    LinearCall call = given;
    call.x = flatten(call.x);
    call.y = flatten(call.y);
    if (call.x.batches * call.x.rows == 0 || call.panels == 0) return;
    const Plan plan = make_plan(call, execution);
    if (plan.workers == 1 && !plan.copies_x && plan.rows <= kLinearNarrowRows) {
        return Worker{call, plan, nullptr, nullptr, 0}.run(0);
    }
    const std::int64_t kernel_floats = kLinearScratch + kLinearRows * call.table.panel;
    const std::int64_t x_stride = (ceil_of(call.weights.k, 16) | 1) * 16;  // an odd number of lines
    const std::int64_t copy_rows = plan.copies_x ? std::min(kLinearRows, ceil_of(plan.rows, plan.row_blocks)) : 0;
    const std::int64_t floats = kernel_floats + copy_rows * x_stride;
    const Scratch scratch(static_cast<std::size_t>(plan.workers * floats) * sizeof(float));
    std::atomic<std::int64_t> next{0};
    parallel_for(execution, plan.workers, [&](std::int64_t index) {
        float* own = scratch.data<float>() + index * floats;
        Worker worker{call, plan, own, own + kernel_floats, x_stride};
        for (std::int64_t block; (block = next.fetch_add(1, std::memory_order_relaxed)) < plan.blocks();)
            worker.run(block);
    });
}

}  // namespace headwise
