// LinearKernels, see linear.h.
#include "kernels/linear_tile.h"

namespace headwise::HEADWISE_ISA {
namespace {

// A stretch of one panel fills L1 (32 KB) once, beside some rows of x that stream from L2: measured better than half of
// that, because sums are loaded and stored less often. In the narrow path the stretches of all panels of a tile share L1.
constexpr int64_t kStretch = 8192 / kPanel;
constexpr int64_t kNarrowHeight = 2;
constexpr int64_t kNarrowStretch = 6144 / (kTileRows / kNarrowHeight * kPanel);

int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }
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

// So few rows that a tile of one or two of them takes several panels: these are far apart, so that each is a memory
// stream of its own. Where there are more rows than that, short stretches stay in L1 until all rows have used them.
void run_narrow(const LinearBlock& block) {
    const LinearWeights& weights = block.weights;
    const TileKernels& kernels = *kTileKernels[static_cast<int>(weights.storage)];
    const int64_t height = min_of(block.rows, kNarrowHeight);
    const int64_t step = ceil_of(block.count, kTileRows / height);
    const int64_t stretch = block.rows == height ? max_of(weights.k, 1) : kNarrowStretch;
    alignas(64) float sums[kLinearNarrowRows * kTileRows * kPanel];
    for (int64_t i = 0; i < step; ++i) {
        const int64_t first = block.first + i;
        const int64_t panels = ceil_of(block.count - i, step);
        const bool direct = ends_in_y(block, first, step, panels);
        for (int64_t k = 0; k == 0 || k < weights.k; k += stretch) {
            const int64_t depth = min_of(stretch, weights.k - k);
            const bool last = k + depth == weights.k;
            for (int64_t row = 0; row < block.rows; row += height) {
                const int64_t rows = min_of(height, block.rows - row);
                kernels(rows, panels)({.x = block.x + row * block.x_stride + k,
                                       .x_stride = block.x_stride,
                                       .weights = panel_at(weights, first, k),
                                       .weights_step = step * weights.panel_step * bytes_of(weights.storage),
                                       .k = depth,
                                       .ahead = panel_at(weights, first, k),
                                       .ahead_step = 0,
                                       .resume = k > 0,
                                       .sums = sums + row * kPanel,
                                       .sums_step = block.rows * kPanel,
                                       .y = direct && last ? static_cast<float*>(block.y) : nullptr,
                                       .y_rows = block.y_rows + row,
                                       .columns = weights.columns + first,
                                       .bias = weights.bias + first * kPanel,
                                       .panel_step = step});
            }
        }
        if (direct) continue;
        for (int64_t p = 0; p < panels; ++p) {
            finish(block, first + p * step, block.rows, sums + p * block.rows * kPanel);
        }
    }
}

// All rows times one panel, over the stretch of `depth` rows from `k` on. The tiles share the work of prefetching what
// follows in the panel: without it the first of them would wait for memory on every line.
void run_stretch(const LinearBlock& block, int64_t panel, int64_t k, int64_t depth) {
    const LinearWeights& weights = block.weights;
    float* const sums = block.scratch;
    const int64_t tiles = ceil_of(block.rows, kTileRows);
    const bool last = k + depth == weights.k;
    const bool direct = last && ends_in_y(block, panel, 1, 1);
    const char* const ahead = panel_at(weights, panel, k + depth);
    const int64_t ahead_step = kPanel * bytes_of(weights.storage) / tiles;
    const char* from = panel_at(weights, panel, k);
    Storage storage = weights.storage;
    if (storage != Storage::f32 && tiles > 1) {  // several tiles share one conversion
        float* const wide = block.scratch + kLinearRows * kPanel;
        for (int64_t i = 0; i < depth * kPanel; i += kLanes) store(wide + i, load_as(from, storage, i));
        from = reinterpret_cast<const char*>(wide);
        storage = Storage::f32;
    }
    for (int64_t i = 0, row = 0; i < tiles; ++i) {
        const int64_t rows = (block.rows - row) / (tiles - i);  // even: no tile of 1 to 3 rows beside full ones
        (*kTileKernels[static_cast<int>(storage)])(rows, 1)({.x = block.x + row * block.x_stride + k,
                                                             .x_stride = block.x_stride,
                                                             .weights = from,
                                                             .weights_step = 0,
                                                             .k = depth,
                                                             .ahead = ahead + i * depth * ahead_step,
                                                             .ahead_step = ahead_step,
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

void run_wide(const LinearBlock& block) {
    for (int64_t panel = block.first; panel < block.first + block.count; ++panel) {
        for (int64_t k = 0; k == 0 || k < block.weights.k; k += kStretch) {
            run_stretch(block, panel, k, min_of(kStretch, block.weights.k - k));
        }
    }
}

void run_block(const LinearBlock& block) {
    if (block.rows <= kLinearNarrowRows) {
        run_narrow(block);
    } else {
        run_wide(block);
    }
}

}  // namespace

extern const LinearKernels kLinearKernels;
const LinearKernels kLinearKernels = {pack_panel, run_block};

}  // namespace headwise::HEADWISE_ISA
