// Returns the message of a function that refuses its argument.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "convtune/error.h"

namespace convtune {

// The message of the Error{kind} that `function` throws, or "accepted".
template <class Function>
std::string refusal(Function function, ErrorKind kind = ErrorKind::invalid_argument) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    return error.what();
  }
  return "accepted";
}

}  // namespace convtune
