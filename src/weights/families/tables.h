// The tables that family_tables() puts together.
#pragma once

#include "weights/families/shared.h"

namespace headwise::families {

extern const std::span<const Family> kLlamaLike;
extern const std::span<const Family> kOtherDecoders;
extern const std::span<const Family> kEncoders;
extern const std::span<const Family> kEncoderDecoders;

}  // namespace headwise::families
