// Defines the command's exit codes; scripts rely on these numbers.
#pragma once

#include "convtune/error.h"
#include "convtune/verify.h"

namespace convtune::cli {

enum ExitCode : int {
  kOk = 0,
  kMismatch = 1,  // verify found a wrong answer, or a kernel that does not compile
  kUsage = 2,     // bad options, problems or files; or what was found could not be written
  kNoDevice = 3,  // the device asked for is not in this machine
  kInternal = 4,  // convtune, or a library under it, broke a promise
  kInterrupted = 130,
};

ExitCode exit_code(ErrorKind kind);
ExitCode exit_code(const VerifyReport& report);

}  // namespace convtune::cli
