// The kernel table of one ISA: where the kernels of all *.isa.cpp files meet.
#include "kernels/kernel_table.h"
#include "kernels/vec.h"

#define HEADWISE_TEXT_(x) #x
#define HEADWISE_TEXT(x) HEADWISE_TEXT_(x)

namespace headwise::HEADWISE_ISA {

extern const RowKernels kRowKernels;
extern const LinearKernels kLinearKernels;
extern const AttendKernels kAttendKernels;
extern const CacheKernels kCacheKernels;
extern const MeasureKernels kMeasureKernels;

extern constinit const KernelTable kTable = {HEADWISE_TEXT(HEADWISE_ISA),
                                             kLanes,
                                             2 * kLanes,
                                             kTileRows,
                                             kRowKernels,
                                             kLinearKernels,
                                             kAttendKernels,
                                             kCacheKernels,
                                             kMeasureKernels};

}  // namespace headwise::HEADWISE_ISA
