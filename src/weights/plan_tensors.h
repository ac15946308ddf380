// Which tensors of the file a planned layer needs, and of which shape.
#pragma once

#include <string>

#include "weights/plan.h"

namespace headwise {

// Fills plan.matrices and adds to plan.tensors. Throws Error bad_data, beginning with `where`, for sizes beyond 2^31.
void plan_tensors(LayerPlan& plan, const std::string& where);

}  // namespace headwise
