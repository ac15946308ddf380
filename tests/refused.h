// Calls that must throw.
#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include <headwise/error.h>

namespace headwise {

// `call` throws invalid_argument, and its message holds `words`.
inline void expect_refused(const std::function<void()>& call, const std::string& words) {
    try {
        call();
        ADD_FAILURE() << "accepted what should say: " << words;
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
        EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
}

}  // namespace headwise
