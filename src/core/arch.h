// What differs between processors outside the vector headers: the spin hint and the floating-point control register.
#pragma once

#include <cstdint>

namespace headwise {

// Tells the core that this is a spin loop (saves power, frees the sibling thread).
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
    asm volatile("pause");
#elif defined(__aarch64__)
    asm volatile("isb");  // `yield` is a no-op on most cores
#endif
}

// Rounding mode, flush-to-zero and exception masks of the calling thread, without the sticky exception flags.
// <cfenv> would do, but its calls cost a hundred nanoseconds.
inline std::uint64_t fp_control() noexcept {
#if defined(__x86_64__)
    std::uint32_t mxcsr = 0;
    asm volatile("stmxcsr %0" : "=m"(mxcsr));
    return mxcsr & ~0x3fu;
#elif defined(__aarch64__)
    std::uint64_t fpcr = 0;
    asm volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return 0;
#endif
}

inline void set_fp_control([[maybe_unused]] std::uint64_t control) noexcept {
#if defined(__x86_64__)
    const auto mxcsr = static_cast<std::uint32_t>(control);
    asm volatile("ldmxcsr %0" : : "m"(mxcsr));
#elif defined(__aarch64__)
    asm volatile("msr fpcr, %0" : : "r"(control));
#endif
}

// Computes under `control` for the life of this object.
class FpControlScope {
public:
    explicit FpControlScope(std::uint64_t control) noexcept : saved_(fp_control()), changed_(control != saved_) {
        if (changed_) set_fp_control(control);
    }
    ~FpControlScope() {
        if (changed_) set_fp_control(saved_);
    }
    FpControlScope(const FpControlScope&) = delete;
    FpControlScope& operator=(const FpControlScope&) = delete;

private:
    std::uint64_t saved_;
    bool changed_;
};

}  // namespace headwise
