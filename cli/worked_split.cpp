#include "cli/worked_split.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include <headwise/attend.h>
#include <headwise/mha.h>
#include <headwise/tensor.h>

namespace headwise::cli {

namespace {

// The inputs as the library takes them.
struct Inputs {
    Tensor q{DType::f32, {1, 1, 4}};       // [B,T,E]
    Tensor tokens{DType::f32, {1, 2, 4}};  // [B,S,E]: keys, and values too
    Tensor identity{DType::f32, {4, 4}};   // W_Q, W_K and W_V: the rows above are already projected
    Tensor w_o{DType::f32, {4, 4}};        // [out, in], the transpose of kOutput

    Inputs() {
        std::copy(kQuery.begin(), kQuery.end(), q.data<float>());
        for (std::size_t i = 0; i < 8; ++i) tokens.data<float>()[i] = static_cast<float>(kTokens[i / 4][i % 4]);
        for (std::size_t i = 0; i < 4; ++i) {
            identity.data<float>()[5 * i] = 1;
            for (std::size_t j = 0; j < 4; ++j) w_o.data<float>()[4 * j + i] = static_cast<float>(kOutput[i][j]);
        }
    }
};

// Attention with `heads` heads over the four columns; each head's window on the rows is a view, nothing is copied.
// The values are one-hot in the width of a head, so weights can be read from the first two numbers of an output.
std::vector<Look> attend_as(const Inputs& inputs, std::int64_t heads) {
    const std::int64_t width = 4 / heads;
    const auto split = [&](const auto& view) { return view.split_axis(2, heads, width); };
    Tensor merged(DType::f32, {1, 1, 4});
    Tensor lse(DType::f32, {1, heads, 1});
    attend({.q = split(inputs.q.view()), .k = split(inputs.tokens.view()), .v = split(inputs.tokens.view())},
           {.out = split(merged.view()), .lse = lse.view()});

    std::vector<Look> looks(static_cast<std::size_t>(heads));
    for (std::size_t h = 0; h < looks.size(); ++h) {
        const float* out = merged.data<float>() + h * static_cast<std::size_t>(width);
        Look& look = looks[h];
        look.output.assign(out, out + width);
        for (std::size_t s = 0; s < 2; ++s) {
            look.weights[s] = look.output[s];
            look.scaled[s] = std::log(look.weights[s]) + lse.data<float>()[h];  // softmax undone: ln w = s - lse
            look.scores[s] = look.scaled[s] * std::sqrt(static_cast<double>(width));
        }
    }
    return looks;
}

// The whole block, stages 1 to 5: the query attends the tokens.
Row4 run_block(const Inputs& inputs, const MhaConfig& config, const MhaWeights& weights) {
    const MultiHeadAttention block(config, weights);
    const Tensor y = block.forward(inputs.q.view(), {.key = inputs.tokens.view()});
    Row4 row{};
    std::copy_n(y.data<float>(), row.size(), row.begin());
    return row;
}

// One head through its own rows of W_O: a block that has only this head's slices of the four weights.
Row4 contribution(const Inputs& inputs, std::int64_t head) {
    const ConstTensorView rows = inputs.identity.view().slice(0, 2 * head, 2);
    return run_block(inputs, {.embed_dim = 4, .heads = 1, .head_dim = 2, .out_dim = 4},
                     {.q = rows, .k = rows, .v = rows, .o = inputs.w_o.view().slice(1, 2 * head, 2)});
}

// One head by hand over columns [begin, begin + width).
Look look_by_hand(std::size_t begin, std::size_t width) {
    Look look;
    look.output.assign(width, 0);
    double total = 0;
    for (std::size_t s = 0; s < 2; ++s) {
        for (std::size_t d = begin; d < begin + width; ++d) look.scores[s] += kQuery[d] * kTokens[s][d];
        look.scaled[s] = look.scores[s] / std::sqrt(static_cast<double>(width));
        total += std::exp(look.scaled[s]);
    }
    for (std::size_t s = 0; s < 2; ++s) {
        look.weights[s] = std::exp(look.scaled[s]) / total;
        for (std::size_t d = 0; d < width; ++d) look.output[d] += look.weights[s] * kTokens[s][begin + d];
    }
    return look;
}

void finish(WorkedSplit& split) {
    for (std::size_t j = 0; j < 4; ++j) split.sum[j] = split.contributions[0][j] + split.contributions[1][j];
    for (std::size_t i = 0; i < 4; ++i) split.concat[i] = split.heads[i / 2].output[i % 2];
}

}  // namespace

WorkedSplit split_by_library() {
    const Inputs inputs;
    WorkedSplit split;
    const std::vector<Look> looks = attend_as(inputs, 2);
    std::copy(looks.begin(), looks.end(), split.heads.begin());
    split.wide = attend_as(inputs, 1).front();
    split.contributions = {contribution(inputs, 0), contribution(inputs, 1)};
    finish(split);
    const ConstTensorView identity = inputs.identity.view();
    split.y = run_block(inputs, {.embed_dim = 4, .heads = 2},
                        {.q = identity, .k = identity, .v = identity, .o = inputs.w_o.view()});
    return split;
}

WorkedSplit split_by_hand() {
    WorkedSplit split;
    split.heads = {look_by_hand(0, 2), look_by_hand(2, 2)};
    split.wide = look_by_hand(0, 4);
    for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t j = 0; j < 4; ++j) {
            split.contributions[i / 2][j] += split.heads[i / 2].output[i % 2] * kOutput[i][j];
        }
    }
    finish(split);
    for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t j = 0; j < 4; ++j) split.y[j] += split.concat[i] * kOutput[i][j];
    }
    return split;
}

std::vector<double> all_numbers(const WorkedSplit& split) {
    std::vector<double> numbers;
    const auto append = [&](const auto& values) { numbers.insert(numbers.end(), values.begin(), values.end()); };
    for (const Look* look : std::initializer_list<const Look*>{&split.heads[0], &split.heads[1], &split.wide}) {
        append(look->scores), append(look->scaled), append(look->weights), append(look->output);
    }
    append(split.concat), append(split.contributions[0]), append(split.contributions[1]);
    append(split.sum), append(split.y);
    return numbers;
}

}  // namespace headwise::cli
