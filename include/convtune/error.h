// Declares the ways in which convtune refuses: Error for failure, Support for "this algorithm steps aside,
// because".
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "convtune/language.h"

namespace convtune {

// Classifies an error, so that a caller can act on it without reading the message.
enum class ErrorKind {
  invalid_argument,  // a bad problem, name, file or option; the message names it
  unsupported,       // understood, but nothing here can do it
  no_device,         // the device asked for is not in this machine
  io,                // a file could not be read or written
  device_lost,       // a kernel broke the device for this process: only a new process can use it again
  internal,          // convtune, or a library under it, broke a promise
};

// Thrown by every function of the public interface that fails. The message is one sentence (or
// several lines for a list) that names what was wrong, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// A refusal is a value, not a failure: yes, or no with a reason fit to print after "because".
class [[nodiscard]] Support {
 public:
  static Support yes() { return Support(true, {}); }
  static Support no(std::string reason) { return Support(false, std::move(reason)); }
  explicit operator bool() const { return supported_; }
  const std::string& reason() const { return reason_; }

 private:
  Support(bool supported, std::string reason) : supported_(supported), reason_(std::move(reason)) {}
  bool supported_;
  std::string reason_;
};

}  // namespace convtune
