// See processors.h.
#include "cpu/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include "cpu/base/control_groups.h"

namespace convtune::cpu {

std::optional<double> processor_quota(const std::filesystem::path& groups, const std::filesystem::path& own) {
  std::optional<double> least;
  for_each_group("cpu", groups, own, [&](const std::filesystem::path& folder, int version) {
    // Microseconds of processor time in a period; "max" or -1 where there is no limit.
    double quota = 0, period = 0;
    if (version == 2) {
      std::ifstream(folder / "cpu.max") >> quota >> period;
    } else {
      std::ifstream(folder / "cpu.cfs_quota_us") >> quota;
      std::ifstream(folder / "cpu.cfs_period_us") >> period;
    }
    if (quota > 0 && period > 0) least = std::min(quota / period, least.value_or(quota / period));
  });
  return least;
}

int usable_processors() {
  cpu_set_t set;
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;  // not where there are more than 1024
  const int runnable = known ? CPU_COUNT(&set) : static_cast<int>(std::thread::hardware_concurrency());
  const int granted = static_cast<int>(std::ceil(std::min(processor_quota().value_or(runnable), 1e6)));
  return std::max(1, std::min(runnable, granted));
}

}  // namespace convtune::cpu
