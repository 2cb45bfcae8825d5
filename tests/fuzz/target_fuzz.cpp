// A target file, whatever it holds: a target that its own text gives again, or Error{invalid_argument}.
#include <cstdlib>

#include "convtune/error.h"
#include "convtune/target.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const convtune::Target target = convtune::parse_target({reinterpret_cast<const char*>(data), size});
    if (convtune::parse_target(to_json(target)) != target) std::abort();
    if (convtune::occupancy(target, {128, 64, 4096}).blocks < 0) std::abort();
  } catch (const convtune::Error& error) {
    if (error.kind() != convtune::ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
