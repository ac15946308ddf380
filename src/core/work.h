// One call of run_tasks: hands its task numbers to whatever threads come to help.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

#include "core/arch.h"

namespace headwise {

class alignas(64) Work {
public:
    Work(std::int64_t tasks, void (*task)(void* arg, std::int64_t index), void* arg) noexcept
        : tasks_(tasks), task_(task), arg_(arg), fp_control_(fp_control()) {}

    // Runs tasks until none is left to start. Tasks on every thread compute in the floating-point environment of the
    // thread that made this object, so that rounding and flushing never depend on who ran what.
    void drain() noexcept {
        const FpControlScope scope(fp_control_);
        const bool outer = std::exchange(inside_task, true);
        try {
            for (std::int64_t i = take(); i < tasks_; i = take()) task_(arg_, i);
        } catch (...) {
            if (!failed_.exchange(true)) error_ = std::current_exception();
            next_.store(tasks_, std::memory_order_relaxed);
        }
        inside_task = outer;
    }

    // After all threads have left drain(): throws what the first failing task threw; later tasks were left out.
    void rethrow() {
        if (failed_.load(std::memory_order_relaxed)) std::rethrow_exception(error_);
    }

    // True on a thread that is running a task: what it starts runs inline.
    static bool inside() noexcept { return inside_task; }

private:
    std::int64_t take() noexcept { return next_.fetch_add(1, std::memory_order_relaxed); }

    static thread_local constinit bool inside_task;

    std::atomic<std::int64_t> next_{0};
    const std::int64_t tasks_;
    void (*const task_)(void*, std::int64_t);
    void* const arg_;
    const std::uint64_t fp_control_;
    std::atomic<bool> failed_{false};
    std::exception_ptr error_;
};

}  // namespace headwise
