// See planner.h.
#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "contract/most_images.h"
#include "convtune/convolution.h"
#include "plan/algorithms.h"
#include "plan/recorded_batches.h"
#include "problem/element.h"

namespace convtune {
namespace {

const Algorithm* named(std::string_view name, const DeviceInfo& device) {
  for (const Algorithm* algorithm : algorithms(device.device.kind))
    if (algorithm->name() == name) return algorithm;
  return nullptr;
}

// A record that kept the vendor also has the fastest of ours that was measured then: here it is as if it had
// won.
Record of_ours(Record record, const DeviceInfo& device) {
  const auto is_ours = [&](const std::string& name) {
    const Algorithm* algorithm = named(name, device);
    return algorithm && !algorithm->vendor() && !algorithm->reference();
  };
  if (is_ours(record.algorithm)) return record;
  const auto blank = record.runner_up.find(' ');
  record.algorithm = record.runner_up.substr(0, blank);
  if (!is_ours(record.algorithm)) record.algorithm.clear();
  try {
    record.config = parse_config(blank == std::string::npos ? "" : record.runner_up.substr(blank + 1));
  } catch (const Error&) {  // somebody's editor wrote it
    record.algorithm.clear();
  }
  record.time_us = record.runner_up_us, record.kernel_hash = record.runner_up_hash;
  record.decision = "the fastest of ours", record.undecided = 0;
  record.left_out.clear(), record.searched.clear();
  return record;
}

// The record of `recorded`, if it still holds for `problem`.
std::optional<Record> valid_record(const ConvProblem& recorded, const ConvProblem& problem,
                                   const DeviceInfo& device, bool ours_only) {
  std::optional<Record> record = Database().find(recorded, device.fingerprint);
  if (record && ours_only) record = of_ours(std::move(*record), device);
  if (record && !still_holds(*record, problem, device)) record.reset();
  return record;
}

// This layer at another batch size is the near neighbour that is worth following: its best
// config is nearly always good here too.
std::optional<Record> nearest_record(const ConvProblem& problem, const DeviceInfo& device, bool ours_only) {
  ConvProblem other = problem;
  for (const std::int64_t batch : recorded_batches(Database(), problem, device.fingerprint)) {
    other.n = batch;
    if (auto record = valid_record(other, problem, device, ours_only)) return record;
  }
  return std::nullopt;
}

// An algorithm's first guess, and what a model says that it takes.
struct Guess {
  const Algorithm* algorithm;
  Config config;
  std::optional<double> estimated_us;
};

constexpr double kNear = 1.05;  // times an estimate that says no more than the other

// The table's first that can; but where it has an estimate, the least of all that have one. Of kernels that
// are compiled for a problem, estimates that are nearly the same say nothing: then it is the last in the
// table, a general one, compiled in no time.
Plan best_of(const std::vector<Guess>& guesses) {
  const Guess* best = &guesses.front();
  std::string others;
  for (const Guess& guess : guesses)
    if (guess.estimated_us && *guess.estimated_us < *best->estimated_us) best = &guess;
  if (best->estimated_us && best->algorithm->compiles(best->config)) {
    const double most = kNear * *best->estimated_us;
    for (const Guess& guess : guesses)
      if (guess.estimated_us && *guess.estimated_us <= most) best = &guess;
  }
  // Nobody knows a CPU's clock: of its estimates only ratios mean something.
  const bool knows_clock = best->algorithm->device_kind() != Device::Kind::cpu;
  for (const Guess& guess : guesses) {
    if (!guess.estimated_us || &guess == best) continue;
    const std::string time =
        knows_clock ? fmt::format("{:.1f}", *guess.estimated_us)
                    : fmt::format("about {:.1f} times", *guess.estimated_us / *best->estimated_us);
    others += fmt::format("{}{} {}", others.empty() ? "" : ", ", guess.algorithm->name(), time);
  }
  if (best->algorithm->reference())
    return {std::string(best->algorithm->name()), best->config, PlanSource::estimate,
            "no other algorithm takes the problem: the reference is right, and slow"};
  std::string why = "no record: the first guess of the first algorithm that can";
  if (best->estimated_us) {
    why = "no record: the first guess that a model finds fastest";
    if (knows_clock) why += fmt::format(", {:.1f} us", *best->estimated_us);
    if (!others.empty()) why += " (" + others + (knows_clock ? ")" : " its time)");
  }
  return {std::string(best->algorithm->name()), best->config, PlanSource::estimate,
          why + "; `convtune tune` finds better"};
}

}  // namespace

std::string_view to_string(PlanSource source) {
  switch (source) {
    case PlanSource::tuned:
      return "tuned";
    case PlanSource::unproven:
      return "unproven";
    case PlanSource::nearest:
      return "nearest";
    case PlanSource::estimate:
      return "estimate";
    case PlanSource::forced:
      return "forced";
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} is not a value of PlanSource", static_cast<int>(source)));
}

Precision automatic_precision(const ConvProblem& problem, Precision of_f32) {
  const DTypes& types = problem.dtype;
  const DType one = problem.direction == Direction::backward_data ? types.y : types.x;
  const DType other = problem.direction == Direction::backward_weights ? types.y : types.w;
  if (one != other) return Precision::fp32;
  const Precision own = element_row(one).products;
  return own == Precision::automatic ? of_f32 : own;
}

ConvProblem resolve(const ConvProblem& problem, const Backend& backend) {
  return resolve(problem, backend.default_precision());
}

ConvProblem resolve(const ConvProblem& problem, Precision of_f32) {
  validate(problem);
  ConvProblem resolved = problem;
  if (resolved.precision == Precision::automatic) resolved.precision = automatic_precision(problem, of_f32);
  return resolved;
}

bool still_holds(const Record& record, const ConvProblem& problem, const DeviceInfo& device) {
  const Algorithm* algorithm = named(record.algorithm, device);
  return algorithm != nullptr && algorithm->source_hash() == record.kernel_hash &&
         algorithm->accepts(problem, device, record.config);
}

std::optional<Record> find_record(const ConvProblem& resolved, const DeviceInfo& device) {
  return valid_record(resolved, resolved, device, false);
}

std::string with_remark(std::string why, const Algorithm& algorithm, const ConvProblem& resolved) {
  if (const std::string remark = algorithm.remark(resolved); !remark.empty()) why += "; it " + remark;
  return why;
}

namespace {

// The problem's record, or one of another batch.
std::optional<Record> any_record(const ConvProblem& resolved, const DeviceInfo& device, bool ours_only) {
  std::optional<Record> own = valid_record(resolved, resolved, device, ours_only);
  return own ? own : nearest_record(resolved, device, ours_only);
}

Plan plan_by(const Record& record, const ConvProblem& resolved, const DeviceInfo& device) {
  const Algorithm& algorithm = find_algorithm(device.device.kind, record.algorithm);
  const bool own = record.problem.n == resolved.n, proven = record.proven();
  std::string why =
      fmt::format("tuned on this device for batch {}; tune this batch to be sure", record.problem.n);
  if (own) {
    const std::string older = renewal(record);
    why = fmt::format("measured {:.1f} us on this device on {}{}: {}{}", record.time_us, record.date,
                      proven ? "" : ", without proof", record.decision, older.empty() ? "" : "; " + older);
  }
  const PlanSource source = !own ? PlanSource::nearest : proven ? PlanSource::tuned : PlanSource::unproven;
  return {record.algorithm, record.config, source, with_remark(std::move(why), algorithm, resolved)};
}

Plan choose(const ConvProblem& resolved, const DeviceInfo& device, bool ours_only) {
  const std::optional<Record> record = any_record(resolved, device, ours_only);
  return record ? plan_by(*record, resolved, device) : first_guess(resolved, device, ours_only);
}

}  // namespace

Plan choose(const ConvProblem& resolved, const DeviceInfo& device) {
  return choose(resolved, device, false);
}

Plan choose_ours(const ConvProblem& resolved, const DeviceInfo& device) {
  return choose(resolved, device, true);
}

Plan choose_recorded(const ConvProblem& resolved, const DeviceInfo& device, bool this_batch) {
  const std::optional<Record> record =
      this_batch ? find_record(resolved, device) : any_record(resolved, device, false);
  if (!record || !record->proven())
    throw Error(ErrorKind::unsupported,
                fmt::format("no record on {} proves an algorithm for {}; `convtune tune` makes one",
                            to_string(device.device), to_string(resolved)));
  const Algorithm& algorithm = find_algorithm(device.device.kind, record->algorithm);
  if (algorithm.vendor() || algorithm.reference())
    throw Error(ErrorKind::unsupported,
                fmt::format("the record of {} on {} keeps {}, which is not one of convtune's own algorithms; "
                            "`{}` chooses among those",
                            to_string(resolved), to_string(device.device), record->algorithm, kOurs));
  return plan_by(*record, resolved, device);
}

Plan choose_any_batch(const ConvProblem& resolved, const DeviceInfo& device) {
  Plan plan = choose(resolved, device);
  Config any = plan.config;
  any.values.emplace_back(kMostImages, resolved.n);
  const Algorithm& algorithm = find_algorithm(device.device.kind, plan.algorithm);
  if (!algorithm.vendor() && algorithm.accepts(resolved, device, any)) plan.config = std::move(any);
  return plan;
}

Plan first_guess(const ConvProblem& resolved, const DeviceInfo& device, bool ours_only) {
  return first_guess_among(algorithms(device.device.kind), resolved, device, ours_only);
}

Plan first_guess_among(const std::vector<const Algorithm*>& table, const ConvProblem& resolved,
                       const DeviceInfo& device, bool ours_only) {
  std::string reasons;
  std::vector<Guess> guesses;
  for (const Algorithm* algorithm : table) {
    if (ours_only && (algorithm->vendor() || algorithm->reference())) continue;
    // There is no model of a vendor's library, so it would not be chosen; to ask cuDNN takes 0.3 s.
    if (algorithm->vendor() && !guesses.empty()) continue;
    if (const Support support = algorithm->supports(resolved, device); !support) {
      reasons += fmt::format("\n  {}: {}", algorithm->name(), support.reason());
      continue;
    }
    const Config config = algorithm->candidates(resolved, device).front();
    guesses.push_back({algorithm, config, algorithm->estimated_us(resolved, device, config)});
    if (!guesses.front().estimated_us) break;  // nothing to compare it with
  }
  if (!guesses.empty()) {
    Plan best = best_of(guesses);
    auto chosen = std::ranges::find(table, best.algorithm, &Algorithm::name);
    // A general kernel, compiled for no problem and the table's last, is slower than what a vendor has; but
    // for problems so small that others are as fast.
    const bool is_general =
        (*chosen)->device_kind() == Device::Kind::cuda && !(*chosen)->vendor() &&
        !(*chosen)->compiles(best.config) && std::next(chosen) == table.end() &&
        std::ranges::none_of(guesses.begin(), guesses.end() - 1, [&](const Guess& other) {
          return other.estimated_us && *other.estimated_us <= kNear * *guesses.back().estimated_us;
        });
    for (auto one = table.begin(); is_general && !ours_only && one != table.end(); ++one)
      if ((*one)->vendor() && (*one)->supports(resolved, device)) {
        best = best_of({{*one, (*one)->candidates(resolved, device).front(), std::nullopt}});
        chosen = one;
      }
    best.why = with_remark(best.why, **chosen, resolved);
    return best;
  }
  throw Error(ErrorKind::unsupported,
              fmt::format("no algorithm of {} can run {}:{}", ours_only ? "ours" : to_string(device.device),
                          to_string(resolved), reasons));
}

}  // namespace convtune
