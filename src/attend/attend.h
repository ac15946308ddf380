// Stage 3 for other stages: attention over views, on a given kernel table.
#pragma once

#include <headwise/attend.h>

#include "kernels/kernel_table.h"

namespace headwise {

// Throws invalid_argument for everything that attend() does not accept; touches no tensor but lengths and offsets.
void check_attend(const AttendInputs& inputs, const AttendOutputs& outputs);
void check_attend_inputs(const AttendInputs& inputs);
// The part of it that is about scores: scale, softcap, tau, biases by position, sinks, gate and dropout.
void check_scores(const AttendInputs& inputs, std::int64_t value_width);

// attend() with a table of the caller's choice. The arguments must have passed check_attend().
void attend(const KernelTable& kernels, const AttendInputs& inputs, const AttendOutputs& outputs,
            const Execution& execution);

}  // namespace headwise
