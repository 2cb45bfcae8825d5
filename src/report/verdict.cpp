// Who won, and by how much, in words: the one sentence of tables, pages and Python's reports.
#include <fmt/format.h>

#include "convtune/report.h"

namespace convtune {

std::string verdict(const Comparison& comparison, Letters letters) {
  const auto measured = [letters](const ProviderResult& one) {
    return measured_text(one.time_us, one.mad_us, one.n > 1, letters);
  };
  if (comparison.providers.empty()) return "nothing was measured";
  const ProviderResult& own = comparison.providers.front();
  if (!own.failure.empty() || !(own.time_us > 0)) return "convtune has no answer here";
  const ProviderResult* const peer = best_peer(comparison);
  if (!peer || !(comparison.speedup > 0))
    return fmt::format("convtune takes {}; no peer ran here", measured(own));
  const std::string config = to_string(own.config);
  if (peer->name == (config.empty() ? own.algorithm : own.algorithm + ' ' + config))
    return fmt::format("convtune runs the fastest of the vendor's ways, {}", peer->name);
  const std::string numbers = fmt::format("{} against {}", measured(own), measured(*peer));
  const double speedup = comparison.speedup;
  if (speedup >= 1 - kTieShare && speedup <= 1 + kTieShare)
    return fmt::format("convtune and the best of the vendor's ways, {}, are equally fast (±{:g} %): {}",
                       peer->name, 100 * kTieShare, numbers);
  return fmt::format("convtune is {:.2f}{} {} than the best of the vendor's ways, {}: {}",
                     speedup > 1 ? speedup : 1 / speedup, letters == Letters::ascii ? "x" : "×",
                     speedup > 1 ? "faster" : "slower", peer->name, numbers);
}

}  // namespace convtune
