// See compile_ahead.h.
#include "tune/compile_ahead.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "base/compiling_children.h"
#include "convtune/error.h"

namespace convtune {
namespace {

double precompile(const ConvProblem& problem, const DeviceInfo& device, const Way& way) {
  const auto begun = std::chrono::steady_clock::now();
  way.first->precompile(problem, device, way.second);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

}  // namespace

struct CompileAhead::Children {
  CompilingChildren running;
  std::size_t begun = 0;
  std::vector<std::size_t> late;
  double slowest = 0;
};

CompileAhead::CompileAhead(const ConvProblem& problem, const DeviceInfo& device, const std::vector<Way>& ways,
                           double seconds_each)
    : children_(std::make_unique<Children>()) {
  try {
    for (std::size_t i = 0; i < ways.size(); ++i, ++children_->begun)
      children_->running.begin(
          i, [&, i] { return std::to_string(precompile(problem, device, ways[i])); }, seconds_each);
  } catch (const Error&) {  // no more processes are to be had
  }
}

CompileAhead::~CompileAhead() = default;

double CompileAhead::wait() {
  while (children_->running.count() > 0)
    children_->running.wait([&](std::size_t i, const CompilingChildren::Result& result) {
      if (result.late) children_->late.push_back(i);
      if (result.answer) children_->slowest = std::max(children_->slowest, std::stod(*result.answer));
    });
  return children_->slowest;
}

std::vector<std::size_t> CompileAhead::late() const {
  return children_->late.size() < children_->begun ? children_->late : std::vector<std::size_t>();
}

}  // namespace convtune
