// The machine: which instruction set the kernels use, and which threads run them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <headwise/export.h>

namespace headwise {

// ---- instruction sets -------------------------------------------------------------------------------------

struct IsaInfo {
    std::string name;     // "avx512_bf16", "avx512", "avx2", "neon", "scalar"
    bool usable = false;  // compiled in, and this CPU and operating system can run it
    std::string reason;   // why it is not usable; empty if it is
};

HEADWISE_API std::vector<IsaInfo> isas();  // every ISA of this build, best first

// The ISA in force: set_isa(), else the environment variable HEADWISE_ISA, else the best usable one.
// Throws invalid_argument when the environment names an ISA that is unknown or not usable.
HEADWISE_API std::string active_isa();
HEADWISE_API std::string active_isa_reason();  // "best of this CPU", "HEADWISE_ISA", "set_isa"

// Forces an ISA for calls and weights packed from now on ("" = choose again). Throws invalid_argument.
HEADWISE_API void set_isa(std::string_view name);

// ---- threads ----------------------------------------------------------------------------------------------

// The host's own threads. `parallel_for` must call task(arg, i) once for every i in [0, tasks), in any order, on
// any threads, and return when all are done; neither it nor a task throws. `width` is how many may run at once.
// The context must outlive every call that uses it.
struct Executor {
    void* context = nullptr;
    int width = 0;
    void (*parallel_for)(void* context, std::int64_t tasks, void (*task)(void* arg, std::int64_t index),
                         void* arg) = nullptr;
};

// How one call is run. Results have the same bits whatever is chosen here. All threads compute in the caller's
// floating-point environment (rounding, flush to zero), and leave it as it is.
struct Execution {
    int threads = 0;                     // 0: threads()
    const Executor* executor = nullptr;  // null: the executor of set_executor(), else headwise's own pool;
                                         // a default-made Executor: the pool in any case
};

// Threads of headwise's own pool, the calling one included: set_threads(), else HEADWISE_THREADS, else the
// number of CPUs that the affinity mask and the cgroup quota leave, both read once. Throws invalid_argument when
// HEADWISE_THREADS is no count. The pool starts threads as calls need them; in the child of a fork it starts anew.
HEADWISE_API int threads();
HEADWISE_API void set_threads(int count);  // 0: choose again. Throws invalid_argument below 0 or above 4096.
HEADWISE_API void set_executor(const Executor& executor);  // a default-made Executor: back to the pool

// ---- description ------------------------------------------------------------------------------------------

struct CpuInfo {
    std::string model;
    std::vector<std::string> features;  // the ones that headwise looks at: "avx2", "fma", ...
    int logical_cpus = 0;
    std::int64_t l1_data_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // 0: unknown
};
HEADWISE_API CpuInfo cpu_info();

// One row per kernel: its name and the ISAs that have it ("attend_tile": "avx512 avx2 neon scalar").
struct KernelInfo {
    std::string name;
    std::string isas;
};
HEADWISE_API std::vector<KernelInfo> kernel_table();

HEADWISE_API std::string build_info();        // version, compiler, flags: one line
HEADWISE_API const char* version() noexcept;  // "0.1.0"

}  // namespace headwise
