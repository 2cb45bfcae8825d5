// See batches.h.
#include "tune/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace convtune {
namespace {

constexpr std::int64_t kMostAtOnce = 16;

std::vector<Candidate> all_candidates(const ConvProblem& problem, const DeviceInfo& device,
                                      const std::vector<const Algorithm*>& algorithms) {
  std::vector<std::vector<Forecast>> of_each;
  for (const Algorithm* algorithm : algorithms) {
    if (algorithm->vendor() || algorithm->reference() || !algorithm->supports(problem, device)) continue;
    std::vector<Forecast>& own = of_each.emplace_back();
    for (Config& config : algorithm->candidates(problem, device)) {
      const auto estimated_us = algorithm->estimated_us(problem, device, config);
      own.push_back({{std::string(algorithm->name()), std::move(config)}, estimated_us});
    }
  }
  return deal(of_each);
}

}  // namespace

Batches::Batches(const ConvProblem& problem, const DeviceInfo& device,
                 const std::vector<const Algorithm*>& algorithms, Rules rules)
    : problem_(problem),
      device_(device),
      algorithms_(algorithms),
      rules_(std::move(rules)),
      search_(all_candidates(problem, device, algorithms)),
      first_(problem, device, choose(rules_.first), rules_.compile_seconds) {}

double Batches::wait() {
  const double slowest = first_.wait();
  leave_out(first_.late());
  return slowest;
}

void Batches::compile(std::int64_t most) {
  CompileAhead batch(problem_, device_, choose(most), rules_.compile_seconds);
  batch.wait();
  leave_out(batch.late());
}

std::size_t Batches::take() {
  const std::size_t index = next_.front();
  next_.pop_front();
  return index;
}

Way Batches::way(std::size_t index) const {
  const Candidate& candidate = search_.candidates()[index];
  const auto is_it = [&](const Algorithm* one) { return one->name() == candidate.algorithm; };
  return {*std::find_if(algorithms_.begin(), algorithms_.end(), is_it), candidate.config};
}

// The next batch, and what of it is to be compiled.
std::vector<Way> Batches::choose(std::int64_t most) {
  std::int64_t count = 1;
  if (device_.device.kind == Device::Kind::cuda)
    count = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, kMostAtOnce);
  std::vector<Way> wanted;
  compiled_.clear();
  for (count = std::min(count, most); count > 0; --count) {
    const auto index = search_.next();
    if (!index) break;
    next_.push_back(*index);
    const auto [algorithm, config] = way(*index);
    if (!rules_.wanted(*algorithm, config, search_.best_us())) continue;
    wanted.push_back({algorithm, config});
    compiled_.push_back(*index);
  }
  size_ = next_.size();
  if (wanted.size() == 1) wanted.clear();  // it is built where it is tried
  return wanted;
}

void Batches::leave_out(const std::vector<std::size_t>& late) {
  for (const std::size_t place : late) {
    const std::size_t index = compiled_[place];
    next_.erase(std::find(next_.begin(), next_.end(), index));
    const Candidate& candidate = search_.candidates()[index];
    warnings.push_back(fmt::format("{} {} takes longer than {:g} s to compile: it was not tried",
                                   candidate.algorithm, to_string(candidate.config), rules_.compile_seconds));
  }
}

}  // namespace convtune
