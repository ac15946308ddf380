// LinearKernels, see linear.h.
#include "kernels/linear_tile.h"

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int64_t kStreams = 4;  // panels far apart in memory that are read side by side where few rows reuse them
constexpr int64_t kFewRows = kLinearSums / kStreams;

int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t ceil_of(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t bytes_of(Storage storage) { return storage == Storage::f32 ? 4 : 2; }

const char* panel_at(const LinearWeights& weights, int64_t panel, int64_t k) {
    const int64_t element = panel * weights.panel_step + k * kPanel;
    return static_cast<const char*>(weights.panels) + element * bytes_of(weights.storage);
}

void pack_panel(void* to, Storage storage, const float* rows, int64_t row_stride, int64_t columns, int64_t k) {
    for (int64_t at = 0; at < k; at += kLanes) {
        const int depth = static_cast<int>(min_of(kLanes, k - at));
        for (int64_t half = 0; half < kPanel; half += kLanes) {
            Vec square[kLanes];
            for (int64_t i = 0; i < kLanes; ++i) {
                square[i] = half + i < columns ? load_n(rows + (half + i) * row_stride + at, depth) : zero();
            }
            transpose(square);
            for (int i = 0; i < depth; ++i) store_as(to, storage, (at + i) * kPanel + half, square[i]);
        }
    }
}

// sums [rows][kPanel] of one panel: + bias, rounded into the columns that exist.
void finish(const LinearBlock& block, int64_t panel, int64_t rows, const float* sums) {
    const LinearColumns columns = block.weights.columns[panel];
    for (int64_t half = 0; half < columns.width; half += kLanes) {
        const int width = static_cast<int>(min_of(kLanes, columns.width - half));
        const Vec bias = load(block.weights.bias + panel * kPanel + half);
        for (int64_t row = 0; row < rows; ++row) {
            const Vec y = add(load(sums + row * kPanel + half), bias);
            const int64_t at = block.y_rows[row] + columns.column + half;
            if (width == kLanes) {
                store_as(block.y, block.y_storage, at, y);
            } else {
                store_as_n(block.y, block.y_storage, at, y, width);
            }
        }
    }
}

// Panels first, first + step, ... (count of them): a tile may end in y itself where y is f32 and no column is missing.
bool ends_in_y(const LinearBlock& block, int64_t first, int64_t step, int64_t count) {
    bool full = block.y_storage == Storage::f32;
    for (int64_t i = 0; i < count; ++i) full = full && block.weights.columns[first + i * step].width == kPanel;
    return full;
}

// So few rows that one tile takes several panels: they are far apart, so that each is a memory stream of its own.
void run_narrow(const LinearBlock& block) {
    const LinearWeights& weights = block.weights;
    const int64_t step = ceil_of(block.count, kTileRows / block.rows);
    alignas(64) float sums[kTileRows * kPanel];
    for (int64_t i = 0; i < step; ++i) {
        const int64_t first = block.first + i;
        const int64_t panels = ceil_of(block.count - i, step);
        const bool direct = ends_in_y(block, first, step, panels);
        const TileKernel kernel = (*kTileKernels[static_cast<int>(weights.storage)])(block.rows, panels);
        kernel({.x = block.x,
                .x_stride = block.x_stride,
                .weights = panel_at(weights, first, 0),
                .weights_step = step * weights.panel_step * bytes_of(weights.storage),
                .k = weights.k,
                .resume = false,
                .sums = sums,
                .sums_step = block.rows * kPanel,
                .y = direct ? static_cast<float*>(block.y) : nullptr,
                .y_rows = block.y_rows,
                .columns = weights.columns + first,
                .bias = weights.bias + first * kPanel,
                .panel_step = step});
        if (direct) continue;
        for (int64_t p = 0; p < panels; ++p)
            finish(block, first + p * step, block.rows, sums + p * block.rows * kPanel);
    }
}

// All rows times one panel, over the stretch of `depth` rows from `k` on.
void run_stretch(const LinearBlock& block, int64_t panel, int64_t k, int64_t depth, float* sums, float* wide) {
    const LinearWeights& weights = block.weights;
    const int64_t tiles = ceil_of(block.rows, kTileRows);
    const char* from = panel_at(weights, panel, k);
    Storage storage = weights.storage;
    if (storage != Storage::f32 && tiles > 1) {  // several tiles share one conversion
        for (int64_t i = 0; i < depth * kPanel; i += kLanes) store(wide + i, load_as(from, storage, i));
        from = reinterpret_cast<const char*>(wide);
        storage = Storage::f32;
    }
    const bool last = k + depth == weights.k;
    const bool direct = last && ends_in_y(block, panel, 1, 1);
    for (int64_t i = 0, row = 0; i < tiles; ++i) {
        const int64_t rows = (block.rows - row) / (tiles - i);  // even: no tile of 1 to 3 rows beside full ones
        (*kTileKernels[static_cast<int>(storage)])(rows, 1)({.x = block.x + row * block.x_stride + k,
                                                             .x_stride = block.x_stride,
                                                             .weights = from,
                                                             .weights_step = 0,
                                                             .k = depth,
                                                             .resume = k > 0,
                                                             .sums = sums + row * kPanel,
                                                             .sums_step = 0,
                                                             .y = direct ? static_cast<float*>(block.y) : nullptr,
                                                             .y_rows = block.y_rows + row,
                                                             .columns = weights.columns + panel,
                                                             .bias = weights.bias + panel * kPanel,
                                                             .panel_step = 0});
        row += rows;
    }
    if (last && !direct) finish(block, panel, block.rows, sums);
}

// One stretch of a panel stays in L1 while all rows pass over it.
void run_wide(const LinearBlock& block) {
    const int64_t streams = block.rows <= kFewRows ? kStreams : 1;
    const int64_t step = ceil_of(block.count, streams);
    float* const wide = block.scratch + kLinearSums * kPanel;
    for (int64_t i = 0; i < step; ++i) {
        for (int64_t k = 0; k == 0 || k < block.weights.k; k += kLinearStretch) {
            const int64_t depth = min_of(kLinearStretch, block.weights.k - k);
            float* sums = block.scratch;
            for (int64_t panel = i; panel < block.count; panel += step, sums += block.rows * kPanel) {
                run_stretch(block, block.first + panel, k, depth, sums, wide);
            }
        }
    }
}

void run_block(const LinearBlock& block) {
    if (block.rows * 2 <= kTileRows) {
        run_narrow(block);
    } else {
        run_wide(block);
    }
}

}  // namespace

extern const LinearKernels kLinearKernels;
const LinearKernels kLinearKernels = {pack_panel, run_block};

}  // namespace headwise::HEADWISE_ISA
