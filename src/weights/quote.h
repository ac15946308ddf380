// Names out of hostile files, made fit for an error message.
#pragma once

#include <string>
#include <string_view>

namespace headwise {

// In single quotes; control bytes and bytes that are not ASCII become \xNN; long text is cut in the middle.
inline std::string quote(std::string_view text) {
    constexpr std::size_t kHead = 90, kTail = 30;
    constexpr char kHex[] = "0123456789abcdef";
    std::string result = "'";
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text.size() > kHead + kTail + 3 && i == kHead) {
            result += "...";
            i = text.size() - kTail;
        }
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte >= 0x20 && byte < 0x7f) {
            result += text[i];
        } else {
            result += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
        }
    }
    return result + "'";
}

}  // namespace headwise
