#include "weights/npy_header.h"

#include <charconv>

#include <headwise/tensor.h>

#include "core/check.h"
#include "weights/quote.h"

namespace headwise {
namespace {

// Reads the few Python literals that NumPy writes: strings, True, False, and tuples of whole numbers.
class Reader {
public:
    Reader(std::string_view text, const std::string& where) : text_(text), where_(where) {}

    NpyHeader read() {
        NpyHeader header;
        bool has_descr = false, has_order = false, has_shape = false;
        expect('{');
        while (!accept('}')) {
            const std::string key = string();
            expect(':');
            if (key == "descr" && !has_descr) {
                header.descr = descr();
                has_descr = true;
            } else if (key == "fortran_order" && !has_order) {
                header.fortran_order = boolean();
                has_order = true;
            } else if (key == "shape" && !has_shape) {
                header.shape = tuple();
                has_shape = true;
            } else {
                bad("the key ", quote(key), " is unknown or appears twice");
            }
            if (!accept(',')) {
                expect('}');
                break;
            }
        }
        skip_space();
        if (at_ != text_.size()) bad("something follows the dictionary at byte ", at_);
        if (!has_descr || !has_order || !has_shape) bad("descr, fortran_order or shape is missing");
        return header;
    }

private:
    template <class... Parts>
    [[noreturn]] void bad(const Parts&... parts) const {
        fail(ErrorCode::bad_data, where_, ": malformed .npy header: ", parts...);
    }

    void skip_space() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    }

    bool accept(char wanted) {
        skip_space();
        if (at_ >= text_.size() || text_[at_] != wanted) return false;
        ++at_;
        return true;
    }

    void expect(char wanted) {
        if (!accept(wanted)) bad("expected '", wanted, "' at byte ", at_);
    }

    bool accept_word(std::string_view word) {
        skip_space();
        if (!text_.substr(at_).starts_with(word)) return false;
        at_ += word.size();
        return true;
    }

    std::string string() {
        skip_space();
        const char mark = at_ < text_.size() ? text_[at_] : ' ';
        if (mark != '\'' && mark != '"') bad("expected a string at byte ", at_);
        const std::size_t end = text_.find(mark, at_ + 1);
        if (end == std::string_view::npos) bad("the string at byte ", at_, " does not end");
        const std::string_view content = text_.substr(at_ + 1, end - at_ - 1);
        if (content.find('\\') != std::string_view::npos) bad("an escape in the string at byte ", at_);
        at_ = end + 1;
        return std::string(content);
    }

    std::string descr() {
        skip_space();
        if (at_ < text_.size() && text_[at_] == '[') {
            fail(ErrorCode::unsupported, where_, ": an array of records; headwise reads arrays of plain numbers");
        }
        return string();
    }

    bool boolean() {
        if (accept_word("True")) return true;
        if (!accept_word("False")) bad("expected True or False at byte ", at_);
        return false;
    }

    std::vector<std::int64_t> tuple() {
        std::vector<std::int64_t> values;
        expect('(');
        while (!accept(')')) {
            skip_space();
            const char* const begin = text_.data() + at_;
            std::int64_t value = -1;
            const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
            if (error != std::errc() || value < 0) bad("expected a size of at most 63 bits at byte ", at_);
            if (values.size() == kMaxRank) bad("more than ", kMaxRank, " dimensions");
            at_ += static_cast<std::size_t>(end - begin);
            values.push_back(value);
            if (!accept(',')) {
                expect(')');
                if (values.size() == 1) bad("the shape is a number, not a tuple");
                break;
            }
        }
        return values;
    }

    std::string_view text_;
    const std::string& where_;
    std::size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, const std::string& where) { return Reader(text, where).read(); }

}  // namespace headwise
