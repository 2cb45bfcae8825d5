#include "torch/plans.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <utility>

#include "base/fork_gate.h"

namespace convtune::torch {

namespace {

constexpr std::size_t kDevices = 65;  // a CPU and GPUs
constexpr std::size_t kPlans = 4096;  // of one device

struct Plans {
  SharedMutex mutex;
  std::array<std::map<std::string, SharedPlan, std::less<>>, kDevices> made;
  std::set<SharedPlan> recorded;
};
Plans& plans() {
  return *once([] { return new Plans; });
}

}  // namespace

Plan plan_of(const convtune_problem& problem, const std::string& device, const char* algorithm,
             const char* config) {
  convtune_convolution* made = nullptr;
  check_face(convtune_plan(&problem, device.c_str(), algorithm, config, &made));
  Plan plan{.problem = problem, .convolution = {made, convtune_convolution_free}};
  std::int64_t z = 0, p = 0, q = 0;
  check_face(convtune_output_size_3d(&problem, &z, &p, &q));
  plan.x = {problem.n, problem.c, std::max<std::int64_t>(problem.d, 1), problem.h, problem.w};
  plan.y = {problem.n, problem.k, z, p, q};
  if (plan.transposed()) std::swap(plan.x, plan.y);
  plan.wanted_last = plan.runs_last();
  return plan;
}

SharedPlan planned(std::string_view text, const Form& x, bool capturing, const char* who,
                   const std::function<Plan(const std::string& device)>& make) {
  auto& [mutex, made, recorded] = plans();
  const auto device = static_cast<std::size_t>(x.device_type == shim->cuda ? 1 + x.device_index : 0);
  if (device >= kDevices) throw std::runtime_error(std::string(who) + ": there are more GPUs than it counts");
  auto& known = made[device];
  if (!capturing) {
    const std::shared_lock lock(mutex);
    if (const auto found = known.find(text); found != known.end()) return found->second;
  }
  const std::unique_lock lock(mutex);  // a plan may compile: others wait, and find it
  auto found = known.find(text);
  if (found == known.end()) {
    if (capturing)
      throw std::runtime_error(std::string(who) +
                               ": it has not run yet, and a CUDA graph is being recorded: a plan may have to "
                               "compile. Run it once before");
    SharedPlan plan = std::make_shared<const Plan>(make(device_text(x)));
    if (known.size() >= kPlans) known.clear();
    found = known.emplace(text, std::move(plan)).first;
  }
  if (capturing) recorded.insert(found->second);
  return found->second;
}

void forget_plans() {
  const std::lock_guard lock(plans().mutex);
  for (auto& known : plans().made) known.clear();
}

}  // namespace convtune::torch
