// Helping with a name that is not there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headwise {

// "it holds ..." with at most ten names: all of them, or those that share most of their beginning and end with `name`.
std::string describe_near_names(std::string_view name, std::vector<std::string> names);

}  // namespace headwise
