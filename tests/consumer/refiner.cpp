// As above, with convtune_refine: what a profile's one number says.
#include <convtune/refine.h>

#include <cstdio>

int main() {
  const auto kernels = convtune::parse_metrics(R"({"conv": {"launch__grid_size": 128}})");
  const auto findings = convtune::analyze(kernels.at(0), convtune::find_target("h100"));
  std::printf("%zu findings\n", findings.size());
  return findings.empty() ? 1 : 0;
}
