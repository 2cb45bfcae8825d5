// The library's face: a plan made into something that runs.
#include "convtune/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "cuda/launch/kernel_algorithm.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "problem/rewrite.h"

namespace convtune {

struct Convolution::State {
  ConvProblem problem;
  DeviceInfo device;
  Plan plan;
  Backend* backend = nullptr;
  std::unique_ptr<Executable> executable;

  // Lists the operands that a run must be given. Without images x and dy are empty, and may lie nowhere.
  struct Needs {
    bool x, cache, residual, dy, y, dx, dw, dbias;
  } needs{};

  bool packs() const { return problem.direction != Direction::backward_weights; }

  void check_weights(const void* w, const void* bias) const {
    if (!packs()) throw Error(ErrorKind::invalid_argument, "pack: backward weights reads no weights");
    if (!w) throw Error(ErrorKind::invalid_argument, "pack: w is null");
    if (problem.bias && !bias)
      throw Error(ErrorKind::invalid_argument,
                  "pack: bias is null, but the problem has a bias (bias=0 says that there is none)");
  }
  void set_needs() {
    const bool forward = problem.direction == Direction::forward;
    const bool data = problem.direction == Direction::backward_data, images = problem.n > 0;
    needs = {.x = !data && images,
             .cache = problem.cache > 0 && images,
             .residual = problem.residual,
             .dy = !forward && images,
             .y = forward,
             .dx = data,
             .dw = !packs(),
             .dbias = !packs() && problem.bias};
  }
  // On the way of every run.
  void check_tensors(const Tensors& tensors) const {
    const char* const missing = needs.x && !tensors.x                 ? "x"
                                : needs.cache && !tensors.cache       ? "cache"
                                : needs.residual && !tensors.residual ? "residual"
                                : needs.dy && !tensors.dy             ? "dy"
                                : needs.y && !tensors.y               ? "y"
                                : needs.dx && !tensors.dx             ? "dx"
                                : needs.dw && !tensors.dw             ? "dw"
                                : needs.dbias && !tensors.dbias       ? "dbias"
                                                                      : nullptr;
    if (missing) [[unlikely]]
      throw Error(ErrorKind::invalid_argument, fmt::format("run: {} is null", missing));
    if (tensors.cache_out) [[unlikely]]
      check_cache_out(tensors);
    if (tensors.dw_last && !executable->can_lay_dw_last()) [[unlikely]]
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("run: {} stores dw as [K][C/groups][T][R][S] alone", plan.algorithm));
  }
  void check_cache_out(const Tensors& tensors) const {
    const std::int64_t kept = problem.kept_frames();
    if (problem.direction != Direction::forward || kept == 0)
      throw Error(ErrorKind::invalid_argument,
                  "run: cache_out is given, and the next call of this problem needs no frames");
    if (tensors.cache_out == tensors.cache && (problem.cache != kept || 2 * problem.d < kept))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("run: cache_out is the cache, which works where that has {} frames and x at "
                              "least half as many, not {} and {}",
                              kept, problem.cache, problem.d));
  }
  // The frames that the next call needs, once y is there: first those of the cache, which may lie where the
  // others go.
  void keep_frames(const Tensors& tensors, Stream stream) const {
    const std::int64_t kept = problem.kept_frames(), of_x = std::min(problem.d, kept);
    const std::int64_t of_cache = std::min(problem.cache, kept - of_x), zeros = kept - of_x - of_cache;
    const FrameRuns runs = frame_runs(problem);
    const auto bytes = [&](std::int64_t frames) {
      return static_cast<std::size_t>(frames * runs.frame * size_of(problem.dtype.x));
    };
    const auto keep = [&](const void* from, std::int64_t frames, std::int64_t last, std::int64_t at) {
      if (last == 0) return;
      const auto* const first = static_cast<const unsigned char*>(from);
      backend->move_rows({.to = static_cast<unsigned char*>(tensors.cache_out) + bytes(at),
                          .to_pitch = bytes(kept),
                          .from = first ? first + bytes(frames - last) : nullptr,
                          .from_pitch = bytes(frames),
                          .bytes = bytes(last),
                          .count = static_cast<std::size_t>(runs.count)},
                         stream);
    };
    keep(nullptr, 0, zeros, 0);
    keep(tensors.cache, problem.cache, of_cache, zeros);
    keep(tensors.x, problem.d, of_x, kept - of_x);
  }
  void run(const Tensors& tensors, const void* packed, Stream stream) const {
    executable->run(tensors, packed, stream);
    if (tensors.cache_out) [[unlikely]]
      keep_frames(tensors, stream);
  }
  // A batch of 0 has no work, but a gradient over all images is 0 then.
  bool has_work() const { return problem.n > 0 || !packs(); }
  void check_packed(const char* what, const void* packed) const {
    const std::size_t alignment = packed_alignment(device.device.kind);
    if (packed && reinterpret_cast<std::uintptr_t>(packed) % alignment == 0) [[likely]]
      return;
    throw Error(ErrorKind::invalid_argument,
                packed ? fmt::format("{}: packed ({}) is not aligned to {} bytes", what, packed, alignment)
                       : fmt::format("{}: packed is null", what));
  }
};

namespace {

// One line a plan on standard error, for who asks what runs in a program that is not the command.
void say(const ConvProblem& problem, const DeviceInfo& device, const Plan& plan) {
  const char* const asked = ::secure_getenv("CONVTUNE_VERBOSE");
  if (asked == nullptr || *asked == '\0' || std::string_view(asked) == "0") return;
  const std::string config = to_string(plan.config);
  std::fputs(
      fmt::format("convtune: plan: {} on {}: {}{}{} ({}: {})\n", to_string(problem), to_string(device.device),
                  plan.algorithm, config.empty() ? "" : " ", config, to_string(plan.source), plan.why)
          .c_str(),
      stderr);
}

}  // namespace

struct ConvolutionAccess {
  static Convolution make(const ConvProblem& resolved, Backend& backend, Plan plan) {
    auto state = std::make_shared<Convolution::State>();
    state->problem = resolved;
    state->set_needs();
    state->device = backend.info();
    state->backend = &backend;
    state->executable =
        find_algorithm(state->device.device.kind, plan.algorithm).build(resolved, state->device, plan.config);
    if (plan.source != PlanSource::forced) state->executable->give_way();
    state->plan = std::move(plan);
    say(state->problem, state->device, state->plan);
    Convolution convolution;
    convolution.state_ = std::move(state);
    return convolution;
  }
};

Convolution plan(const ConvProblem& problem, Device device) {
  Backend& on = backend(device);
  const ConvProblem resolved = resolve(problem, on);
  return ConvolutionAccess::make(resolved, on, choose(resolved, on.info()));
}

Convolution plan(const ConvProblem& problem, Device device, const std::string& algorithm_name,
                 const Config& config) {
  Backend& on = backend(device);
  const ConvProblem resolved = resolve(problem, on);
  if (algorithm_name == kOurs && config.values.empty())
    return ConvolutionAccess::make(resolved, on, choose_ours(resolved, on.info()));
  if ((algorithm_name == kRecorded || algorithm_name == kRecordedBatch) && config.values.empty())
    return ConvolutionAccess::make(resolved, on,
                                   choose_recorded(resolved, on.info(), algorithm_name == kRecordedBatch));
  if (algorithm_name == kAnyBatch && config.values.empty())
    return ConvolutionAccess::make(resolved, on, choose_any_batch(resolved, on.info()));
  const Algorithm& algorithm = find_algorithm(device.kind, algorithm_name);
  if (const Support support = algorithm.supports(resolved, on.info()); !support)
    throw Error(ErrorKind::unsupported,
                fmt::format("{} cannot run {}: {}", algorithm_name, to_string(resolved), support.reason()));
  const Config chosen = config.values.empty() ? algorithm.candidates(resolved, on.info()).front() : config;
  if (const Support support = algorithm.accepts(resolved, on.info(), chosen); !support)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} does not take the config '{}': {}", algorithm_name, to_string(chosen),
                            support.reason()));
  return ConvolutionAccess::make(
      resolved, on,
      {algorithm_name, chosen, PlanSource::forced, with_remark("named by the caller", algorithm, resolved)});
}

std::vector<std::string> algorithm_names(Device::Kind kind) {
  std::vector<std::string> names;
  for (const Algorithm* algorithm : algorithms(kind)) names.emplace_back(algorithm->name());
  return names;
}

std::vector<AlgorithmAnswer> answers(const ConvProblem& problem, Device device) {
  Backend& on = backend(device);
  const ConvProblem resolved = resolve(problem, on);
  std::optional<Plan> chosen;
  try {
    chosen = choose(resolved, on.info());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;  // nobody can: the reasons below say why
  }
  std::vector<AlgorithmAnswer> all;
  for (const Algorithm* algorithm : algorithms(device.kind)) {
    AlgorithmAnswer answer;
    answer.algorithm = algorithm->name();
    answer.vendor = algorithm->vendor();
    const Support support = algorithm->supports(resolved, on.info());
    answer.supported = static_cast<bool>(support);
    answer.reason = support.reason();
    if (support) {
      const std::vector<Config> candidates = algorithm->candidates(resolved, on.info());
      answer.candidates = static_cast<std::int64_t>(candidates.size());
      answer.config = candidates.front();
      answer.chosen = chosen && chosen->algorithm == answer.algorithm;
      if (answer.chosen) {
        answer.config = chosen->config;
        answer.reason = chosen->why;
      } else {
        answer.reason = with_remark(
            algorithm->reference() ? "the oracle: right, and slow" : "can run it; another was chosen",
            *algorithm, resolved);
      }
    }
    all.push_back(std::move(answer));
  }
  return all;
}

const ConvProblem& Convolution::problem() const {
  return state_->problem;
}
const DeviceInfo& Convolution::device() const {
  return state_->device;
}
const Plan& Convolution::plan() const {
  return state_->plan;
}

PackedWeights Convolution::pack(const void* w, const void* bias, Stream stream) const {
  state_->check_weights(w, bias);
  PackedWeights packed;
  packed.data_ = state_->backend->allocate(state_->executable->packed_bytes());
  packed.owner_ = state_.get();
  state_->executable->pack(w, state_->problem.bias ? bias : nullptr, packed.data_.get(), stream);
  return packed;
}

void Convolution::run(const Tensors& tensors, const PackedWeights& weights, Stream stream) const {
  if (!state_->has_work()) return;
  state_->check_tensors(tensors);
  if (weights.owner_ != state_.get() && state_->packs())
    throw Error(ErrorKind::invalid_argument, weights ? "run: the weights were packed by another Convolution"
                                                     : "run: the weights are empty; pack() makes them");
  state_->run(tensors, weights.data_.get(), stream);
}

std::size_t Convolution::packed_bytes() const {
  return state_->executable->packed_bytes();
}

std::optional<std::size_t> Convolution::workspace_bytes() const {
  return state_->executable->workspace_bytes();
}

std::string Convolution::packed_order() const {
  const State& state = *state_;
  const Algorithm& algorithm = find_algorithm(state.device.device.kind, state.plan.algorithm);
  if (algorithm.vendor()) return {};  // which lays them as it likes
  const auto* const kernel = cuda::kernel_algorithm(algorithm);
  std::string order = kernel ? kernel->packed_order(state.problem, state.device, state.plan.config) : "";
  // Weights lie by config and channels, whatever the batch; but nobody has compared those of kernels that
  // take the problem as numbers.
  if (order.empty() && state.problem.direction == Direction::forward &&
      !(kernel && kernel->plan(state.problem, state.device, state.plan.config).serves_every_problem)) {
    ConvProblem image = state.problem;
    image.n = 1;
    image.name.clear();
    order = fmt::format("{} {} {}", state.plan.algorithm, to_string(state.plan.config), to_string(image));
  }
  return order;
}

bool Convolution::can_lay_dw_last() const {
  return state_->executable->can_lay_dw_last();
}

void Convolution::pack_into(const void* w, const void* bias, void* packed, Stream stream) const {
  state_->check_weights(w, bias);
  state_->check_packed("pack", packed);
  state_->executable->pack(w, state_->problem.bias ? bias : nullptr, packed, stream);
}

void Convolution::run_packed(const Tensors& tensors, const void* packed, Stream stream) const {
  if (!state_->has_work()) return;
  state_->check_tensors(tensors);
  if (state_->packs()) state_->check_packed("run", packed);
  state_->run(tensors, packed, stream);
}

void Convolution::run(const Tensors& tensors, const void* w, const void* bias, Stream stream) const {
  run(tensors, pack(w, bias, stream), stream);
}

std::string Convolution::explain_config() const {
  const Plan& p = state_->plan;
  std::string text;
  const std::vector<ConfigField> fields = find_algorithm(state_->device.device.kind, p.algorithm).fields();
  for (const auto& [name, value] : p.config.values)
    if (const auto field = std::ranges::find(fields, name, &ConfigField::name); field != fields.end())
      text +=
          fmt::format("{:<16} {:>6}  {} to {}: {}\n", name, value, field->least, field->most, field->meaning);
  return text;
}

std::string Convolution::explain() const {
  const Plan& p = state_->plan;
  std::string text =
      fmt::format("problem    {}\ndevice     {} ({})\nplan       {} {}\nsource     {}: {}\n",
                  to_string(state_->problem), to_string(state_->device.device), state_->device.name,
                  p.algorithm, to_string(p.config), to_string(p.source), p.why);
  for (const AlgorithmAnswer& answer : answers(state_->problem, state_->device.device))
    if (answer.algorithm != p.algorithm)
      text += fmt::format("{:<10} {}: {}\n", answer.algorithm,
                          answer.supported ? "stood by" : "stepped aside", answer.reason);
  return text;
}

}  // namespace convtune
