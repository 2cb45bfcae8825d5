// A Triton file, whatever it holds: refined into 3 to 6 configs and read again, or Error{invalid_argument}.
#include <cstdlib>

#include "convtune/error.h"
#include "convtune/refine.h"
#include "triton_source.h"

namespace {

void refine_and_read_again(std::string_view text) {
  static const convtune::Target kTarget = convtune::find_target("rtx4090");
  const convtune::TritonSource source(text);
  const convtune::KernelMetrics metrics = {
      source.kernel(),
      {{"launch__grid_size", 48400}, {"sm__warps_active.avg.pct_of_peak_sustained_active", 33}}};
  convtune::RefineOptions options;
  options.original = to_string(source.configs().front());
  const convtune::Refined refined = convtune::refine(text, {metrics}, kTarget, options);
  if (refined.source.empty()) return;
  if (refined.configs.size() < 3 || refined.configs.size() > 6) std::abort();
  if (convtune::TritonSource(refined.source).configs().size() != refined.configs.size()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    refine_and_read_again({reinterpret_cast<const char*>(data), size});
  } catch (const convtune::Error& error) {
    if (error.kind() != convtune::ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
