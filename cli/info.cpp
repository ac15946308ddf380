// `headwise info`: the machine as headwise sees it, and what it chose.
#include <algorithm>
#include <cstdio>
#include <string>

#include <headwise/cpu.h>

#include "cli/commands.h"
#include "cli/json.h"
#include "cli/text.h"

namespace headwise::cli {

namespace {

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
    return text;
}

std::string cache_text(std::int64_t bytes) { return bytes > 0 ? bytes_text(bytes) : "unknown"; }

Json to_json(const CpuInfo& cpu) {
    Json choices = Json::array();
    for (const IsaInfo& isa : isas()) {
        choices.push(Json::object({{"name", isa.name}, {"usable", isa.usable}, {"reason", isa.reason}}));
    }
    Json kernels = Json::array();
    for (const KernelInfo& kernel : kernel_table()) {
        kernels.push(Json::object({{"name", kernel.name}, {"isas", kernel.isas}}));
    }
    return Json::object({
        {"command", "info"},
        {"version", version()},
        {"build", build_info()},
        {"cpu", Json::object({{"model", cpu.model},
                              {"logical_cpus", cpu.logical_cpus},
                              {"features", Json::array(cpu.features)},
                              {"l1_data_bytes", cpu.l1_data_bytes},
                              {"l2_bytes", cpu.l2_bytes},
                              {"l3_bytes", cpu.l3_bytes}})},
        {"isa", active_isa()},
        {"isa_reason", active_isa_reason()},
        {"isas", choices},
        {"threads", threads()},
        {"executor", "pool"},
        {"kernels", kernels},
    });
}

void print_text(const CpuInfo& cpu) {
    std::printf("headwise  %s\n", version());
    std::printf("build     %s\n", wrap(build_info(), 100, 10).c_str());
    std::printf("CPU       %s, %d logical CPUs\n", cpu.model.c_str(), cpu.logical_cpus);
    std::printf("features  %s\n", wrap(joined(cpu.features), 100, 10).c_str());
    std::printf("caches    L1 data %s, L2 %s, L3 %s\n", cache_text(cpu.l1_data_bytes).c_str(),
                cache_text(cpu.l2_bytes).c_str(), cache_text(cpu.l3_bytes).c_str());
    std::printf("threads   %d, executor: headwise's own pool\n", threads());
    std::printf("ISA       %s (%s)\n", active_isa().c_str(), active_isa_reason().c_str());
    for (const IsaInfo& isa : isas()) {
        std::printf("          %-12s %s\n", isa.name.c_str(),
                    wrap(isa.usable ? "usable" : "not usable: " + isa.reason, 100, 23).c_str());
    }
    std::size_t width = 0;
    for (const KernelInfo& kernel : kernel_table()) width = std::max(width, kernel.name.size());
    const char* title = "kernels";
    for (const KernelInfo& kernel : kernel_table()) {
        std::printf("%-9s %s  %s\n", title, pad(kernel.name, width).c_str(), kernel.isas.c_str());
        title = "";
    }
}

}  // namespace

void apply(const Machine& machine) {
    if (!machine.isa.empty()) set_isa(machine.isa);
    if (machine.threads > 0) set_threads(machine.threads);
    (void)active_isa();  // these two throw when the environment asks for what is not there
    (void)threads();
}

Exit info(const InfoOptions& options) {
    apply(options.machine);
    const CpuInfo cpu = cpu_info();
    if (options.json) {
        print(to_json(cpu));
    } else {
        print_text(cpu);
    }
    return Exit::done;
}

}  // namespace headwise::cli
