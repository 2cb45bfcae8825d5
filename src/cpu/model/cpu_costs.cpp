// See cpu_costs.h.
#include "cpu/model/cpu_costs.h"

namespace convtune::cpu {
namespace {

constexpr CpuCostRow kRows[] = {
#define LIST(name, value, machine, date, meaning) {#name, machine, date, meaning, &CpuCosts::name},
    CONVTUNE_CPU_COSTS(LIST)
#undef LIST
};

CpuCosts in_use;

}  // namespace

const CpuCosts& cpu_costs() {
  return in_use;
}

void set_cpu_costs(const CpuCosts& costs) {
  in_use = costs;
}

std::span<const CpuCostRow> cpu_cost_rows() {
  return kRows;
}

}  // namespace convtune::cpu
