// What this machine can do at most, measured in the same run as whatever is judged by it. Each figure is the best of many
// repeats, taken once per program and thread count, with the loops of the kernel table in force.
#pragma once

namespace headwise::bench {

double fma_peak(int threads);        // f32 operations a second, an fma counts 2
double read_bandwidth(int threads);  // bytes a second from memory, beyond the last cache

}  // namespace headwise::bench
