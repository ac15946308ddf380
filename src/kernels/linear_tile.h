// The register tile of the linear layer: a few rows of x times one or more panels over a stretch of k.
// Only for linear.isa.cpp.
#pragma once

#include "kernels/linear.h"
#include "kernels/storage.h"
#include "kernels/unroll.h"

namespace headwise::HEADWISE_ISA {
namespace {

constexpr int kPanel = 2 * kLanes;

struct LinearTile {
    const float* x;  // row 0 at the first k of the stretch
    int64_t x_stride;
    const char* weights;   // the tile's first panel at the first k of the stretch
    int64_t weights_step;  // bytes to the tile's next panel
    int64_t k;             // length of the stretch
    const char* ahead;     // tiles of one panel prefetch from here, ahead_step bytes further on every k
    int64_t ahead_step;
    bool resume;        // go on from `sums`; else from 0
    float* sums;        // [panels][rows][kPanel]
    int64_t sums_step;  // floats to the tile's next panel
    // Where it ends: null: in sums, unfinished. Else: + bias, into f32 rows of y with all columns of every panel.
    float* y;
    const int64_t* y_rows;
    const LinearColumns* columns;  // of the tile's first panel
    const float* bias;             // of the tile's first panel
    int64_t panel_step;            // panels from one panel of the tile to the next
};

// Vec `half` of row k of a panel.
template <Storage kStorage>
HEADWISE_INLINE Vec load_weights(const char* panel, int64_t k, int half) {
    return load_as(panel, kStorage, k * kPanel + half * kLanes);
}

// kRows * kPanels <= kTileRows, so that all sums stay in registers. With one panel its two vectors are loaded once and x
// is broadcast row by row; with several the broadcasts stay and each vector of weights is used up at once.
template <int kRows, int kPanels, Storage kStorage>
void run_tile(const LinearTile& tile) {
    Vec sums[kPanels * kRows * 2];  // [panel][row][half]
    const auto in_sums = [&](auto i) __attribute__((always_inline)) {
        return tile.sums + i / (kRows * 2) * tile.sums_step + i % (kRows * 2) * kLanes;
    };
    if (tile.resume) {
        unroll<kPanels * kRows * 2>([&](auto i) __attribute__((always_inline)) { sums[i] = load(in_sums(i)); });
    } else {
        unroll<kPanels * kRows * 2>([&](auto i) __attribute__((always_inline)) { sums[i] = zero(); });
    }

    const float* x[kRows];
    const char* panels[kPanels];
    unroll<kRows>([&](auto r) __attribute__((always_inline)) { x[r] = tile.x + r * tile.x_stride; });
    unroll<kPanels>([&](auto p)
                        __attribute__((always_inline)) { panels[p] = tile.weights + p * tile.weights_step; });
    for (int64_t k = 0; k < tile.k; ++k) {
        if constexpr (kPanels == 1) {
            Vec low = load_weights<kStorage>(panels[0], k, 0), high = load_weights<kStorage>(panels[0], k, 1);
            pin(low), pin(high);
            prefetch(tile.ahead + k * tile.ahead_step);
            unroll<kRows>([&](auto r) __attribute__((always_inline)) {
                const Vec a = set1(x[r][k]);
                sums[r * 2] = fma(a, low, sums[r * 2]);
                sums[r * 2 + 1] = fma(a, high, sums[r * 2 + 1]);
            });
        } else {
            Vec a[kRows];
            unroll<kRows>([&](auto r) __attribute__((always_inline)) { a[r] = set1(x[r][k]); });
            unroll<kPanels * 2>([&](auto i) __attribute__((always_inline)) {
                constexpr int p = i / 2, half = i % 2;
                Vec b = load_weights<kStorage>(panels[p], k, half);
                if constexpr (kRows > 1) pin(b);
                unroll<kRows>([&](auto r) __attribute__((always_inline)) {
                    constexpr int at = (p * kRows + r) * 2 + half;
                    sums[at] = fma(a[r], b, sums[at]);
                });
            });
        }
    }

    if (tile.y == nullptr) {
        unroll<kPanels * kRows * 2>([&](auto i) __attribute__((always_inline)) { store(in_sums(i), sums[i]); });
        return;
    }
    unroll<kPanels>([&](auto p) __attribute__((always_inline)) {
        const int64_t panel = p * tile.panel_step;
        const Vec low = load(tile.bias + panel * kPanel), high = load(tile.bias + panel * kPanel + kLanes);
        float* const y = tile.y;
        unroll<kRows>([&](auto r) __attribute__((always_inline)) {
            const int64_t at = tile.y_rows[r] + tile.columns[panel].column;
            store(y + at, add(sums[(p * kRows + r) * 2], low));
            store(y + at + kLanes, add(sums[(p * kRows + r) * 2 + 1], high));
        });
    });
}

using TileKernel = void (*)(const LinearTile&);

template <int kRows, int kPanels, Storage kStorage>
constexpr TileKernel tile_or_null() {
    if constexpr (kRows * kPanels <= kTileRows) {
        return run_tile<kRows, kPanels, kStorage>;
    } else {
        return nullptr;
    }
}

// All tiles of one storage type: kernel(rows, panels) for rows * panels <= kTileRows.
struct TileKernels {
    TileKernel kernels[kTileRows * kTileRows];
    TileKernel operator()(int64_t rows, int64_t panels) const {
        return kernels[(rows - 1) * kTileRows + panels - 1];
    }
};
template <Storage kStorage, int... I>
constexpr TileKernels make_tile_kernels(Indices<I...>) {
    return {{tile_or_null<I / kTileRows + 1, I % kTileRows + 1, kStorage>()...}};
}
template <Storage kStorage>
constexpr TileKernels kTilesOf = make_tile_kernels<kStorage>(MakeIndices<kTileRows * kTileRows>::Type{});
constexpr const TileKernels* kTileKernels[3] = {&kTilesOf<Storage::f32>, &kTilesOf<Storage::bf16>,
                                                &kTilesOf<Storage::f16>};

}  // namespace
}  // namespace headwise::HEADWISE_ISA
