# Compiler flags of everything that becomes part of the library.
add_library(headwise_flags INTERFACE)
target_compile_options(headwise_flags INTERFACE
    -Wall -Wextra -Wconversion -Wshadow
    # a*b + c is fused only where a kernel writes fma(): tails and bodies of a loop then round alike on every ISA.
    -ffp-contract=off
    # No code of ours reads errno or the floating-point exception flags; without these two, sqrt and selects become calls
    # or branches. They change no value, unlike -ffast-math, which is never used: it breaks NaN, Inf and signed zeros.
    -fno-math-errno -fno-trapping-math)
