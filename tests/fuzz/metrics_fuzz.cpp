// A metrics file, whatever it holds: metrics that analyze() can speak of, or Error{invalid_argument}.
#include <cstdlib>

#include "convtune/error.h"
#include "convtune/refine.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  static const convtune::Target kTarget = convtune::find_target("rtx4090");
  static const convtune::AnalyzeOptions kOfAlexNet = {convtune::parse_problem("mb2ic3ih224oc96kh11sh4ph2"),
                                                      {}};
  try {
    for (const auto& metrics : convtune::parse_metrics({reinterpret_cast<const char*>(data), size}))
      for (const auto& options : {convtune::AnalyzeOptions(), kOfAlexNet})
        for (const auto& finding : convtune::analyze(metrics, kTarget, options))
          if (finding.text.empty()) std::abort();
  } catch (const convtune::Error& error) {
    if (error.kind() != convtune::ErrorKind::invalid_argument) std::abort();
  }
  return 0;
}
