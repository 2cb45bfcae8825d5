// See sweep.h.
#include "tune/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "problem/random_problem.h"

namespace convtune {
namespace {

// The sweep asks the vendor once in kVendorEvery problems, since it plans slowly (cuDNN under one lock), and
// lets kernels be compiled once in kCompiledEvery: where nothing has to be compiled, every problem is
// checked.
constexpr std::uint64_t kVendorEvery = 8, kVendorEveryOnGpu = 16, kCompiledEvery = 32;
constexpr std::uint64_t kDraws = 1000;  // per problem for one algorithm
// One in kSnakeEvery problems that could have a Snake has one: few, since one kernel alone and the oracle's
// algorithm take it; more where an algorithm is named that does.
constexpr std::uint64_t kSnakeEvery = 32, kSnakeEveryOfOne = 4;

// The problem along its rows: one row of each image, or all of them one behind another, so that some are
// long.
ConvProblem along_a_row(ConvProblem problem, bool all) {
  if (all) problem.w *= problem.h;
  problem.d = problem.t = problem.h = problem.r = 1;
  problem.stride_d = problem.stride_h = problem.dilation_d = problem.dilation_h = 1;
  problem.pad_front = problem.pad_back = problem.pad_top = problem.pad_bottom = 0;
  problem.cache = 0;
  return problem;
}

// Tells whether it has the depth and the direction that are asked for.
bool is_asked_for(const ConvProblem& problem, const VerifyOptions& options) {
  return (!options.depth || problem.has_depth()) &&
         (!options.direction || problem.direction == *options.direction);
}

// The problem with a Snake in place of its activation, of either kind; channels last, as kernels store such,
// unless a layout is asked for.
ConvProblem with_snake(ConvProblem problem, bool beside, const VerifyOptions& options) {
  if (!options.layout) problem.layout = Layout::nhwc;
  problem.snake = beside ? Snake::beside : Snake::after;
  problem.bias = true, problem.activation = Activation::none, problem.alpha = problem.beta = 0;
  return problem;
}

// One that is asked for, and that the algorithm supports, if there is such a one: some take one shape in
// thousands, and one in a hundred that is like a built-in case.
ConvProblem draw_problem(std::uint64_t seed, std::uint64_t index, const SweptDevice& on,
                         const VerifyOptions& options) {
  ConvProblem drawn;
  for (std::uint64_t attempt = 0; attempt < kDraws; ++attempt) {
    const std::uint64_t bits = random_bits(seed, attempt);
    const std::vector<ConvProblem>& cases = suites()[bits % suites().size()].problems;
    const bool is_like_a_case = attempt % 2 != 0 && !options.algorithm.empty();
    drawn = attempt == 0     ? random_problem_of_any_kind(seed, index)
            : is_like_a_case ? random_problem_like(cases[bits / 64 % cases.size()], bits, index)
                             : random_problem_of_any_kind(bits, index);
    if (options.dtype) drawn.dtype = *options.dtype;
    if (options.layout) drawn.layout = *options.layout;
    drawn = resolve(drawn, on.of_f32);
    if (!is_asked_for(drawn, options)) continue;
    if (options.row) drawn = along_a_row(drawn, random_bits(bits, index) % 2 == 0);
    const auto supports = [&](const ConvProblem& problem) {
      return options.algorithm.empty() ||
             find_algorithm(on.info.device.kind, options.algorithm).supports(problem, on.info);
    };
    const std::uint64_t snakes = random_bits(~bits, index);
    if (drawn.direction != Direction::backward_weights &&
        snakes % (options.algorithm.empty() ? kSnakeEvery : kSnakeEveryOfOne) == 0)
      if (const ConvProblem snaked = with_snake(drawn, snakes / 64 % 2 == 0, options); supports(snaked))
        return snaked;
    if (supports(drawn)) break;
  }
  return drawn;
}

// The algorithms that the options ask for and that can run the problem. One that is not asked for is not even
// asked whether it can: the vendor's library answers slowly.
std::vector<const Algorithm*> chosen_algorithms(const ConvProblem& problem, const DeviceInfo& device,
                                                const VerifyOptions& options, bool with_vendor) {
  std::vector<const Algorithm*> chosen;
  for (const Algorithm* algorithm : algorithms(device.device.kind))
    if ((options.algorithm.empty() ? with_vendor || !algorithm->vendor()
                                   : options.algorithm == algorithm->name()) &&
        algorithm->supports(problem, device))
      chosen.push_back(algorithm);
  return chosen;
}

}  // namespace

Draw all_candidates(const ConvProblem& problem, const SweptDevice& on, const VerifyOptions& options) {
  Draw all{resolve(problem, on.of_f32), {}};
  if (!options.algorithm.empty()) {
    const Algorithm& named =
        find_algorithm(on.info.device.kind, options.algorithm);  // throws for an unknown name
    Support support = named.supports(all.problem, on.info);
    if (support && !options.config.values.empty())
      support = named.accepts(all.problem, on.info, options.config);
    if (!support)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} cannot run {}{}{}: {}", options.algorithm, to_string(all.problem),
                              options.config.values.empty() ? "" : " with ", to_string(options.config),
                              support.reason()));
  } else if (!options.config.values.empty()) {
    throw Error(ErrorKind::invalid_argument, "a config needs the name of its algorithm");
  }
  for (const Algorithm* algorithm : chosen_algorithms(all.problem, on.info, options, on.present)) {
    if (!options.config.values.empty())
      all.chosen.emplace_back(algorithm, options.config);
    else
      for (Config& config : algorithm->candidates(all.problem, on.info))
        all.chosen.emplace_back(algorithm, std::move(config));
  }
  return all;
}

Draw draw(std::uint64_t seed, std::uint64_t index, const SweptDevice& on, const VerifyOptions& options,
          StallWatch& stalls) {
  stalls.doing(index, fmt::format("a problem that {} supports", options.algorithm));
  Draw drawn{draw_problem(seed, index, on, options), {}};
  if (!is_asked_for(drawn.problem, options)) return drawn;
  const std::string problem = to_string(drawn.problem);
  stalls.doing(index, fmt::format("a list of the algorithms that run {}", problem));
  const std::uint64_t vendor_every =
      on.info.device.kind == Device::Kind::cpu ? kVendorEvery : kVendorEveryOnGpu;
  for (const Algorithm* algorithm :
       chosen_algorithms(drawn.problem, on.info, options, on.present && index % vendor_every == 0)) {
    stalls.doing(index, fmt::format("the candidates of {} for {}", algorithm->name(), problem));
    std::vector<Config> ready = algorithm->candidates(drawn.problem, on.info);
    const auto split = std::stable_partition(
        ready.begin(), ready.end(), [&](const Config& config) { return !algorithm->compiles(config); });
    const std::vector<Config> compiled(split, ready.end());
    ready.erase(split, ready.end());
    const auto add = [&](const Config& config) { drawn.chosen.emplace_back(algorithm, config); };
    const auto any = [&](const std::vector<Config>& from, std::uint64_t position) {
      return from[random_bits(seed ^ index, position) % from.size()];
    };
    // The first guess, and two drawn from the whole list.
    if (!ready.empty()) add(ready.front());
    for (std::uint64_t i = 0; i + 1 < std::min<std::uint64_t>(3, ready.size()); ++i) add(any(ready, i));
    // The first guess and any in turns.
    const std::uint64_t every = ready.empty() && !options.algorithm.empty() ? 1 : kCompiledEvery;
    if (!compiled.empty() && index % every == 0)
      add(index / every % 2 == 0 ? compiled.front() : any(compiled, 2));
  }
  return drawn;
}

}  // namespace convtune
