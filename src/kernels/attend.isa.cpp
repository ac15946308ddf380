// AttendKernels, see attend.h.
#include "kernels/attend.h"

#include "kernels/storage.h"

namespace headwise::HEADWISE_ISA {

extern const AttendKernels kAttendKernels;
const AttendKernels kAttendKernels = {};

}  // namespace headwise::HEADWISE_ISA
