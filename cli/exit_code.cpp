// The two mappings onto exit codes.
#include "exit_code.h"

namespace convtune::cli {

ExitCode exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_argument:
    case ErrorKind::unsupported:
    case ErrorKind::io:
      return kUsage;
    case ErrorKind::no_device:
      return kNoDevice;
    case ErrorKind::device_lost:
    case ErrorKind::internal:
      return kInternal;
  }
  return kInternal;
}

ExitCode exit_code(const VerifyReport& report) {
  // A wrong answer that was seen counts even if the sweep was cut short afterwards.
  if (report.mismatches > 0) return kMismatch;
  return report.interrupted ? kInterrupted : kOk;
}

}  // namespace convtune::cli
