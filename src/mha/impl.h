// A MultiHeadAttention is a Block behind a pointer.
#pragma once

#include "mha/block.h"

namespace headwise {

struct MultiHeadAttention::Impl : Block {
    using Block::Block;
};

}  // namespace headwise
