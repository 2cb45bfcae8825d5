// See behind_a_line.h.
#include "tune/behind_a_line.h"

#include <fmt/format.h>

#include <vector>

#include "base/statistics.h"

namespace convtune {
namespace {

constexpr std::size_t kBehind = 16;  // bytes: where malloc's large memory begins
constexpr int kRunsBehind = 7;
constexpr double kShare = 0.05;  // part of the budget

}  // namespace

std::string told_behind_a_line(const Contender& chosen, const SearchContext& with) {
  if (with.device.device.kind != Device::Kind::cpu || with.problem.n == 0 || !chosen.executable) return {};
  if (2 * kRunsBehind * 1e-6 * chosen.screen_us > kShare * with.budget.total() || with.cancelled()) return {};
  const auto sample = with.bed.sampler(*chosen.executable);
  std::vector<double> at, behind;
  for (std::vector<double>* const times : {&at, &behind}) {
    if (times == &behind) with.bed.begin_tensors(kBehind);
    sample();
    for (int i = 0; i < kRunsBehind; ++i) times->push_back(sample());
  }
  return fmt::format("; {:.2f} times as long where tensors begin {} bytes behind a line of the cache",
                     median(behind) / median(at), kBehind);
}

}  // namespace convtune
