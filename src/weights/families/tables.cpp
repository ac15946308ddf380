#include "weights/families/tables.h"

namespace headwise {

std::span<const std::span<const Family>> family_tables() {
    using namespace families;
    static const std::array<std::span<const Family>, 4> kTables = {kLlamaLike, kOtherDecoders, kEncoders,
                                                                   kEncoderDecoders};
    return kTables;
}

}  // namespace headwise
