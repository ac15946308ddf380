// Running tasks on threads. Every task owns its part of the output, so results never depend on how tasks are spread.
#pragma once

#include <cstdint>
#include <type_traits>

#include <headwise/cpu.h>

namespace headwise {

// Calls task(arg, i) once for every i in [0, tasks) and returns when all are done. Runs inline where tasks <= 1, one
// thread is asked for, or the caller is itself a task. Every thread computes in the floating-point environment of the
// caller, which stays as it is. If tasks throw, the first exception is thrown again here and later tasks are left out.
// Throws Error invalid_argument for an impossible Execution before any task has run.
void run_tasks(const Execution& execution, std::int64_t tasks, void (*task)(void* arg, std::int64_t index),
               void* arg);

template <class Body>
void parallel_for(const Execution& execution, std::int64_t tasks, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_tasks(
        execution, tasks, [](void* arg, std::int64_t index) { (*static_cast<Plain*>(arg))(index); },
        const_cast<void*>(static_cast<const void*>(&body)));
}

// How many threads a call with this Execution would use; 1 inside a task. Throws as run_tasks does.
int thread_count(const Execution& execution);

}  // namespace headwise
