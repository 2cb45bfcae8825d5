// What a function says when it refuses its argument.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "convtune/error.h"

namespace convtune {

// The message of the Error{invalid_argument} that `function` throws, or "accepted".
template <class Function>
std::string refusal(Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "accepted";
}

}  // namespace convtune
