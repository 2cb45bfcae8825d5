// Answers of C functions: what is thrown turned into a status and a text of this thread.
#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "c/structs.h"
#include "convtune/c.h"

namespace convtune::c {

// Keeps the words for error_text(), and returns the status.
convtune_status fail(convtune_status status, const char* text) noexcept;
// Keeps the words of the exception that is being handled, and returns its status.
convtune_status fail_of_exception() noexcept;
const char* error_text() noexcept;

template <typename Body>
convtune_status guarded(const Body& body) noexcept {
  try {
    body();
    return CONVTUNE_OK;
  } catch (...) {
    return fail_of_exception();
  }
}

// A function that makes text: `body` returns it.
template <typename Body>
convtune_status text_of(convtune_text* text, const char* name, const Body& body) noexcept {
  if (text) *text = {nullptr, 0};
  return guarded([&] {
    require(text, name);
    const std::string made = body();
    auto* const data = static_cast<char*>(std::malloc(made.size() + 1));
    if (!data) throw std::bad_alloc();
    std::memcpy(data, made.c_str(), made.size() + 1);
    *text = {data, made.size()};
  });
}

}  // namespace convtune::c
