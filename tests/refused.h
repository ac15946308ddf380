// Calls that must throw.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include <headwise/error.h>

namespace headwise {

// `call` throws this error, and its message holds `words`.
inline void expect_refused(const std::function<void()>& call, ErrorCode code, const std::string& words) {
    try {
        call();
        ADD_FAILURE() << "accepted what should say: " << words;
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
}

inline void expect_refused(const std::function<void()>& call, const std::string& words) {
    expect_refused(call, ErrorCode::invalid_argument, words);
}

}  // namespace headwise
