// Tensors and lists of numbers that the user names on the command line, with their shapes checked.
#pragma once

#include <cstdint>
#include <string>

#include <headwise/mha.h>
#include <headwise/tensor.h>

namespace headwise::cli {

// [T,E] as [1,T,E]; rank 3 as it is.
template <class View>
View with_batch(const View& view) {
    return view.rank == 2 ? view.split_axis(0, 1, view.size(0)) : view;
}

// x for --input, or the source of keys for --key: float, [B,T,E] or [T,E].
Tensor load_input(const std::string& flag, const std::string& spec, std::int64_t embed);

// The expected y for --check: float, the shape of y (rank 2 for B = 1).
Tensor load_expected(const std::string& spec, const ConstTensorView& y);

// i64 [B]; "" gives an empty tensor.
Tensor load_lengths(const std::string& text, std::int64_t batch, std::int64_t tokens);

// i64 [T] or [B,T]; "" gives an empty tensor. An error where the layer does not rotate.
Tensor load_positions(const std::string& text, const MhaConfig& config, std::int64_t batch, std::int64_t tokens);

}  // namespace headwise::cli
