// See cpu_algorithm.h.
#include "cpu/launch/cpu_algorithm.h"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/tile/instruction_sets.h"

namespace convtune::cpu {

Support has_code(const DeviceInfo& device) {
  if (widest_vector_bits(device) != 0) return Support::yes();
  return Support::no(fmt::format("it has no code for the instruction set '{}'", device.isa));
}

Support has_vectors(int bits, const DeviceInfo& device) {
  const auto has = [&](const InstructionSet& set) { return set.compiled && set.vector_bits == bits; };
  if (bits <= widest_vector_bits(device) && std::ranges::any_of(instruction_sets(), has))
    return Support::yes();
  return Support::no(fmt::format("vector_bits={} is not supported by this CPU", bits));
}

std::vector<ConvProblem> computed(const ConvProblem& problem) {
  std::vector<ConvProblem> all;
  for (const ForwardPart& part : parts_of(problem)) {
    if (problem.residual && !part.is_whole()) return {problem};
    all.push_back(in_plane(part.problem));
  }
  if (all.empty()) all.push_back(in_plane(joined(problem)));
  return all;
}

double spread_cycles(const ConvProblem& problem) {
  constexpr double kCyclesAByte = 0.5;  // read and written by strides
  double bytes = 0;
  for (const ForwardPart& part : parts_of(problem))
    if (!part.is_whole())
      bytes += static_cast<double>(part.problem.output_elements() * size_of(part.problem.dtype.y));
  return bytes * kCyclesAByte;
}

Support has_memory(std::string_view task, const MemoryPlan& memory) {
  if (memory.fits()) return Support::yes();
  const auto mebibytes = [](std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  return Support::no(fmt::format(
      "{} takes {:.0f} MiB of working memory a thread, {:.0f} MiB of it for the {}; {:.0f} MiB is the most",
      task, mebibytes(memory.bytes()), mebibytes(memory.largest_bytes()), memory.largest(),
      mebibytes(kMostMemoryBytes)));
}

}  // namespace convtune::cpu
