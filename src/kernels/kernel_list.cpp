// Every kernel by name, and which ISAs have it.
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include <headwise/cpu.h>

#include "kernels/dispatch.h"

namespace headwise {
namespace {

struct Kernel {
    const char* name;
    bool (*present)(const KernelTable& table);
};

constexpr Kernel kKernels[] = {
    {"widen", [](const KernelTable& table) { return table.rows.widen != nullptr; }},
    {"narrow", [](const KernelTable& table) { return table.rows.narrow != nullptr; }},
    {"rotate_half", [](const KernelTable& table) { return table.rows.rotate_half != nullptr; }},
    {"rotate_interleaved", [](const KernelTable& table) { return table.rows.rotate_interleaved != nullptr; }},
    {"row_sum", [](const KernelTable& table) { return table.rows.sum != nullptr; }},
    {"row_sum_squares", [](const KernelTable& table) { return table.rows.sum_squares != nullptr; }},
    {"row_normalize", [](const KernelTable& table) { return table.rows.normalize != nullptr; }},
    {"row_clip", [](const KernelTable& table) { return table.rows.clip != nullptr; }},
    {"row_gate", [](const KernelTable& table) { return table.rows.gate != nullptr; }},
    {"row_subtract", [](const KernelTable& table) { return table.rows.subtract != nullptr; }},
    {"linear_pack", [](const KernelTable& table) { return table.linear.pack_panel != nullptr; }},
    {"linear_block", [](const KernelTable& table) { return table.linear.run_block != nullptr; }},
    {"quantize8", [](const KernelTable& table) { return table.cache.quantize8 != nullptr; }},
    {"quantize4", [](const KernelTable& table) { return table.cache.quantize4 != nullptr; }},
    {"dequantize8", [](const KernelTable& table) { return table.cache.dequantize8 != nullptr; }},
    {"dequantize4", [](const KernelTable& table) { return table.cache.dequantize4 != nullptr; }},
    {"measure_fma", [](const KernelTable& table) { return table.measure.fma_loop != nullptr; }},
    {"measure_read", [](const KernelTable& table) { return table.measure.read_loop != nullptr; }},
    {"attend_load_query", [](const KernelTable& table) { return table.attend.load_query != nullptr; }},
    {"attend_store_output", [](const KernelTable& table) { return table.attend.store_output != nullptr; }},
    {"attend_pack_keys", [](const KernelTable& table) { return table.attend.pack_keys != nullptr; }},
    {"attend_pack_values", [](const KernelTable& table) { return table.attend.pack_values != nullptr; }},
    {"attend_scores", [](const KernelTable& table) { return table.attend.scores != nullptr; }},
    {"attend_scores_in_place", [](const KernelTable& table) { return table.attend.scores_in_place != nullptr; }},
    {"attend_cap_scores", [](const KernelTable& table) { return table.attend.cap_scores != nullptr; }},
    {"attend_softmax", [](const KernelTable& table) { return table.attend.softmax != nullptr; }},
    {"attend_values", [](const KernelTable& table) { return table.attend.values != nullptr; }},
    {"attend_values_in_place", [](const KernelTable& table) { return table.attend.values_in_place != nullptr; }},
};

template <class Kernels>
constexpr std::size_t kCount = std::is_empty_v<Kernels> ? 0 : sizeof(Kernels) / sizeof(void (*)());

static_assert(std::size(kKernels) == kCount<RowKernels> + kCount<LinearKernels> + kCount<AttendKernels> +
                                         kCount<CacheKernels> + kCount<MeasureKernels>,
              "every kernel of the table has its line in kKernels");

}  // namespace

std::vector<KernelInfo> kernel_table() {
    std::vector<KernelInfo> infos;
    for (const Kernel& kernel : kKernels) {
        KernelInfo& info = infos.emplace_back(KernelInfo{.name = kernel.name, .isas = {}});
        for (const KernelTable* table : built_tables()) {
            if (!kernel.present(*table)) continue;
            if (!info.isas.empty()) info.isas += ' ';
            info.isas += table->isa;
        }
    }
    return infos;
}

}  // namespace headwise
