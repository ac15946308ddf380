#include <headwise/error.h>

namespace headwise {

const char* describe(ErrorCode code) noexcept {
    switch (code) {
        case ErrorCode::invalid_argument:
            return "invalid argument";
        case ErrorCode::bad_data:
            return "bad data";
        case ErrorCode::io:
            return "input/output";
        case ErrorCode::unsupported:
            return "unsupported";
        case ErrorCode::out_of_memory:
            return "out of memory";
        case ErrorCode::cache_full:
            return "cache full";
        case ErrorCode::internal:
            return "internal defect";
    }
    return "unknown";
}

}  // namespace headwise
