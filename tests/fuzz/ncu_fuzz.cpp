// Text that a profiler prints, whatever it holds: metrics that can be written and read again, or
// Error{invalid_argument}.
#include <cstdlib>
#include <string>

#include "convtune/error.h"
#include "profile/ncu.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const convtune::NcuAnswer answer = convtune::parse_ncu({reinterpret_cast<const char*>(data), size});
    std::string note;
    const convtune::KernelMetrics& launch = convtune::launch_of("a", answer.launches, note);
    const auto again =
        convtune::parse_metrics(convtune::to_json(std::vector<convtune::KernelMetrics>{launch}));
    if (again.size() != 1 || again[0].values != launch.values)
      std::abort();  // bytes that are no text are replaced
  } catch (const convtune::Error& error) {
    if (error.kind() != convtune::ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
