#include "torch/packed.h"

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/fork_gate.h"
#include "torch/running.h"
#include "torch/stack.h"

namespace convtune::torch {

namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error("convtune::conv2d_packed: " + why);
}

struct Planned {
  Planned() = default;
  Planned(const Planned&) = delete;
  Planned& operator=(const Planned&) = delete;
  ~Planned() { convtune_convolution_free(convolution); }

  convtune_convolution* convolution = nullptr;
  convtune_problem problem = CONVTUNE_PROBLEM_INIT;
  Sizes x{}, y{};
  bool own_last = false, wanted_last = false;  // channels last: where it runs, and where y is to be
  std::int64_t packed_bytes = 0;
};

// `plan`: fingerprint of the device, problem, layout, algorithm and config, by tabs (run.choice_line).
using SharedPlan = std::shared_ptr<const Planned>;

SharedPlan make(const std::string& plan, const std::string& device) {
  std::vector<std::string> fields(1);
  for (const char letter : plan)
    if (letter == '\t')
      fields.emplace_back();
    else
      fields.back() += letter;
  if (fields.size() != 5) refuse("'" + plan + "' is no plan of convtune's");
  auto made = std::make_shared<Planned>();
  convtune_problem& problem = made->problem;
  check_face(convtune_problem_parse(fields[1].c_str(), &problem));
  made->wanted_last = problem.layout == CONVTUNE_NHWC;
  made->own_last = fields[2] == "nhwc";
  problem.layout = made->own_last ? CONVTUNE_NHWC : CONVTUNE_NCHW;
  made->x = {problem.n, problem.c, problem.h, problem.w};
  std::int64_t p = 0, q = 0;
  check_face(convtune_output_size(&problem, &p, &q));
  made->y = {problem.n, problem.k, p, q};
  check_face(
      convtune_plan(&problem, device.c_str(), fields[3].c_str(), fields[4].c_str(), &made->convolution));
  if (fingerprint(made->convolution) != fields[0])
    refuse(device + " is another kind of device than the graph was compiled for, '" + fields[0] + "'");
  made->packed_bytes = static_cast<std::int64_t>(convtune_packed_bytes(made->convolution));
  return made;
}

constexpr std::size_t kDevices = 65;  // a CPU and GPUs

// Plans that were made, and those that CUDA graphs have recorded, which stay: nobody says how long one is
// replayed.
struct Plans {
  SharedMutex mutex;
  std::array<std::map<std::string, SharedPlan, std::less<>>, kDevices> made;
  std::set<SharedPlan> recorded;
};
Plans& plans() {
  return *once([] { return new Plans; });
}

SharedPlan planned(std::string_view plan, const Form& x, bool capturing) {
  auto& [mutex, made, recorded] = plans();
  const auto device = static_cast<std::size_t>(x.device_type == shim->cuda ? 1 + x.device_index : 0);
  if (device >= kDevices) refuse("there are more GPUs than it counts");
  auto& known = made[device];
  if (!capturing) {
    const std::shared_lock lock(mutex);
    if (const auto found = known.find(plan); found != known.end()) return found->second;
  }
  const std::unique_lock lock(mutex);
  auto found = known.find(plan);
  if (found == known.end()) {
    if (capturing)
      refuse(
          "it has not run yet, and a CUDA graph is being recorded: a plan may have to compile. Run it once "
          "before");
    const std::string text(plan);
    found = known.emplace(text, make(text, device_text(x))).first;
  }
  if (capturing) recorded.insert(found->second);
  return found->second;
}

Tensor answer(TensorHandle x, TensorHandle packed, TensorHandle residual, std::string_view plan) {
  Form of_x, of_residual;
  if (!read_form(x, of_x) || !is_served(of_x)) refuse("x is no image on a CPU or on an NVIDIA GPU");
  void* const stream = current_stream(of_x);
  const SharedPlan shared = planned(plan, of_x, is_capturing(of_x, stream));
  const Planned& of = *shared;
  std::int64_t bytes = 0;
  check(shim->get_numel(packed, &bytes), "get_numel");
  if (of_x.sizes != of.x || c_dtype(of_x.dtype) != of.problem.dtype || bytes < of.packed_bytes ||
      !on_device_of(packed, of_x))
    refuse("x or the packed weights are not of the plan '" + std::string(plan) + "'");
  const bool added = residual && read_form(residual, of_residual) && of_residual.sizes == of.y &&
                     of_residual.dtype == of_x.dtype && of_residual.on_device_of(of_x);
  if (added != (of.problem.residual != 0) || added != (residual != nullptr))
    refuse("residual is not of the plan '" + std::string(plan) + "'");
  Form y = of_x;
  y.sizes = of.y;
  const Launch launch = {.convolution = of.convolution,
                         .packed = address(packed),
                         .stream = stream,
                         .x = of_x,
                         .residual = of_residual,
                         .y = dense(y, of.wanted_last),
                         .last = of.own_last};
  return run(launch, x, residual);
}

}  // namespace

void forget_packed_plans() {
  const std::lock_guard lock(plans().mutex);
  for (auto& known : plans().made) known.clear();
}

void conv2d_packed(Value* stack, std::uint64_t count, std::uint64_t) {
  Arguments arguments(stack, count);
  Tensor y = answer(as_tensor(stack[0]), as_tensor(stack[1]), unboxed(stack[2]), as_text(stack[3]));
  arguments.free();
  stack[0] = as_value(y.release());
}

}  // namespace convtune::torch
