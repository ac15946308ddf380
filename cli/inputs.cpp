#include "cli/inputs.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <system_error>

#include <headwise/error.h>
#include <headwise/weights.h>

#include "cli/text.h"

namespace headwise::cli {

namespace {

// A list and who answers for it: numbers that were typed are the user's, numbers in a file are the file's.
struct List {
    Tensor numbers{};  // i64
    ErrorCode blame = ErrorCode::invalid_argument;
    std::string where;  // "--lengths 3,4"

    [[noreturn]] void refuse(const std::string& what) const { throw Error(blame, where + " " + what); }
};

[[noreturn]] void refuse_tensor(const std::string& where, const ConstTensorView& view, const std::string& wanted) {
    throw Error(ErrorCode::bad_data, where + " is " + shape_text(view) + ", but must be " + wanted);
}

void require_float(const std::string& where, const ConstTensorView& view) {
    if (view.dtype == DType::i32 || view.dtype == DType::i64 || view.dtype == DType::boolean) {
        refuse_tensor(where, view, "f32, bf16, f16 or f64");
    }
}

Tensor parse_numbers(const std::string& where, const std::string& text) {
    Tensor numbers(DType::i64, {1 + std::count(text.begin(), text.end(), ',')});
    const char* position = text.data();
    const char* const end = position + text.size();
    for (std::int64_t i = 0; i < numbers.count(); ++i) {
        const auto [next, error] = std::from_chars(position, end, numbers.data<std::int64_t>()[i]);
        const bool last = i + 1 == numbers.count();
        if (error != std::errc() || (last ? next != end : *next != ',')) {
            throw Error(ErrorCode::invalid_argument,
                        where + " must be whole numbers with commas between them, or FILE:NAME");
        }
        position = last ? next : next + 1;
    }
    return numbers;
}

List load_list(const std::string& flag, const std::string& text) {
    List list{.where = flag + " " + text};
    if (text.find_first_not_of("0123456789,-") == std::string::npos) {
        list.numbers = parse_numbers(list.where, text);
        return list;
    }
    list.blame = ErrorCode::bad_data;
    const Tensor stored = load_tensor(text);
    if (stored.dtype() != DType::i32 && stored.dtype() != DType::i64) {
        refuse_tensor(list.where, stored.view(), "i32 or i64");
    }
    list.numbers = Tensor(DType::i64, sizes_of(stored.view()));
    for (std::int64_t i = 0; i < stored.count(); ++i) {
        list.numbers.data<std::int64_t>()[i] =
            stored.dtype() == DType::i64 ? stored.data<std::int64_t>()[i] : stored.data<std::int32_t>()[i];
    }
    return list;
}

bool has_shape(const ConstTensorView& view, std::initializer_list<std::int64_t> shape) {
    return std::ranges::equal(sizes_of(view), shape);
}

}  // namespace

Tensor load_input(const std::string& flag, const std::string& spec, std::int64_t embed) {
    Tensor x = load_tensor(spec);
    require_float(flag + " " + spec, x.view());
    if ((x.rank() != 2 && x.rank() != 3) || x.size(x.rank() - 1) != embed) {
        refuse_tensor(flag + " " + spec, x.view(), join("[B,T,", embed, "] or [T,", embed, "] for this layer"));
    }
    return x;
}

Tensor load_expected(const std::string& spec, const ConstTensorView& y) {
    Tensor expected = load_tensor(spec);
    require_float("--check " + spec, expected.view());
    const bool same =
        expected.rank() >= 2 && std::ranges::equal(sizes_of(with_batch(expected.view())), sizes_of(with_batch(y)));
    if (!same) refuse_tensor("--check " + spec, expected.view(), "of the shape of y, " + list_text(sizes_of(y)));
    return expected;
}

Tensor load_lengths(const std::string& text, std::int64_t batch, std::int64_t tokens) {
    if (text.empty()) return {};
    List list = load_list("--lengths", text);
    if (!has_shape(list.numbers.view(), {batch})) {
        list.refuse(join("has shape ", list_text(sizes_of(list.numbers.view())), ", but must be [", batch,
                         "]: one length for each sequence of the input"));
    }
    for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t length = list.numbers.data<std::int64_t>()[b];
        if (length < 0 || length > tokens) {
            list.refuse(join("gives sequence ", b, " the length ", length, ", but the input has 0 to ", tokens,
                             " tokens"));
        }
    }
    return std::move(list.numbers);
}

Tensor load_positions(const std::string& text, const MhaConfig& config, std::int64_t batch, std::int64_t tokens) {
    if (text.empty()) return {};
    if (!config.rope) {
        throw Error(ErrorCode::invalid_argument, "--positions is given, but this layer has no rotary positions");
    }
    List list = load_list("--positions", text);
    if (!has_shape(list.numbers.view(), {tokens}) && !has_shape(list.numbers.view(), {batch, tokens})) {
        list.refuse(join("has shape ", list_text(sizes_of(list.numbers.view())), ", but must be [", tokens,
                         "] or [", batch, ", ", tokens, "] for this input"));
    }
    return std::move(list.numbers);
}

}  // namespace headwise::cli
