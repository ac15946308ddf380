#include <headwise/weights.h>

#include "core/check.h"
#include "weights/file.h"
#include "weights/near_names.h"
#include "weights/quote.h"

namespace headwise {
namespace {

struct Spec {
    std::string file;
    std::optional<std::string> name;
};

// Paths and names may both hold colons: the longest beginning that exists is the file.
Spec split(const std::string& spec) {
    if (path_exists(spec)) return {spec, std::nullopt};
    for (std::size_t colon = spec.rfind(':'); colon != std::string::npos && colon > 0;
         colon = spec.rfind(':', colon - 1)) {
        if (std::string file = spec.substr(0, colon); path_exists(file)) return {file, spec.substr(colon + 1)};
    }
    const std::string file = spec.substr(0, spec.find(':'));
    fail(ErrorCode::io, file.empty() ? spec : file, ": no such file (asked for by ", quote(spec),
         ", read as FILE or FILE:NAME)");
}

}  // namespace

Tensor load_tensor(const std::string& spec, const FileLimits& limits) {
    const Spec parts = split(spec);
    if (parts.file.ends_with(".npy")) {
        check(!parts.name, parts.file,
              ": a .npy file holds one tensor without a name; leave ':", parts.name.value_or(""), "' out");
        return load_npy(parts.file, limits);
    }
    const TensorFile file(parts.file, limits);
    if (parts.name) return file.load(*parts.name);
    const std::vector<std::string> names = file.names();
    if (names.size() == 1) return file.load(names[0]);
    if (names.empty()) fail(ErrorCode::bad_data, parts.file, ": holds no tensors");
    fail(ErrorCode::invalid_argument, parts.file, ": holds ", names.size(),
         " tensors; say which one as FILE:NAME; ", describe_near_names("", names));
}

}  // namespace headwise
