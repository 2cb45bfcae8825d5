// See status.h.
#include "c/status.h"

#include <stdexcept>

#include "convtune/error.h"

namespace convtune::c {
namespace {

// Text that convtune_error_text() returns: `said` is `words`, or a constant where there is no memory for
// words.
thread_local std::string words;
thread_local const char* said = "";

convtune_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
      return CONVTUNE_INVALID_ARGUMENT;
    case ErrorKind::unsupported:
      return CONVTUNE_UNSUPPORTED;
    case ErrorKind::no_device:
      return CONVTUNE_NO_DEVICE;
    case ErrorKind::io:
      return CONVTUNE_IO;
    case ErrorKind::device_lost:
      return CONVTUNE_DEVICE_LOST;
    case ErrorKind::internal:
      break;
  }
  return CONVTUNE_INTERNAL;
}

}  // namespace

convtune_status fail(convtune_status status, const char* text) noexcept {
  try {
    words = text;
    said = words.c_str();
  } catch (const std::bad_alloc&) {
    said = "there is not enough memory, not even to say for what";
  }
  return status;
}

convtune_status fail_of_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return fail(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return fail(CONVTUNE_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const std::length_error&) {  // a container asked for more than any memory
    return fail(CONVTUNE_OUT_OF_MEMORY, "there is not enough memory");
  } catch (const std::exception& error) {
    return fail(CONVTUNE_INTERNAL, error.what());
  } catch (...) {
    return fail(CONVTUNE_INTERNAL, "something was thrown that is no exception of the standard library's");
  }
}

const char* error_text() noexcept {
  return said;
}

}  // namespace convtune::c
