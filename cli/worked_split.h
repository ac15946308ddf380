// The smallest multi-head attention that shows why there are heads: width 4 split into two heads of width 2, one query,
// two tokens A and B. Computed twice: by the library, and by plain arithmetic in double.
#pragma once

#include <array>
#include <vector>

namespace headwise::cli {

using Row4 = std::array<double, 4>;

// Head 0 owns columns 0 and 1, head 1 owns columns 2 and 3.
inline constexpr Row4 kQuery = {0.9, 0.1, 0.2, 0.8};
inline constexpr std::array<Row4, 2> kTokens = {{{1, 0, 1, 0}, {0, 1, 0, 1}}};  // A, B: keys, and values too
inline constexpr std::array<Row4, 4> kOutput = {{                               // W_O, y = concat * W_O
                                                 {1, 0, 2, 0},
                                                 {0, 1, 0, -1},
                                                 {0, 1, 1, 0},
                                                 {1, 0, 0, 2}}};

// What one head does with the query.
struct Look {
    std::array<double, 2> scores{};   // <q, k> of A and B
    std::array<double, 2> scaled{};   // times 1/sqrt(D)
    std::array<double, 2> weights{};  // softmax
    std::vector<double> output;       // [D], the blend of the values
};

struct WorkedSplit {
    std::array<Look, 2> heads;
    Look wide;                            // the same q, k and v as one head of width 4
    Row4 concat{};                        // the two outputs side by side
    std::array<Row4, 2> contributions{};  // head_h * W_O^h, W_O^h = rows 2h and 2h+1 of W_O
    Row4 sum{};                           // of the contributions
    Row4 y{};                             // concat * W_O
};

WorkedSplit split_by_library();
WorkedSplit split_by_hand();
std::vector<double> all_numbers(const WorkedSplit& split);

}  // namespace headwise::cli
