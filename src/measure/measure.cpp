// See measure.h.
#include "measure/measure.h"

#include <algorithm>

#include "base/statistics.h"

namespace convtune {

std::vector<Measurement> measure_in_turns(const std::vector<std::function<double()>>& samplers,
                                          double seconds, const std::function<bool()>& cancelled,
                                          int min_rounds, int max_rounds, const std::function<bool()>& late,
                                          const std::function<Witness()>& witness) {
  std::vector<std::vector<double>> samples(samplers.size());
  std::vector<std::int64_t> interrupted(samplers.size());
  double spent_us = 0;
  for (int round = 0; round < max_rounds && !samplers.empty(); ++round) {
    if (round >= min_rounds && (spent_us > seconds * 1e6 || (late && late()))) break;
    if (cancelled && cancelled()) break;
    for (std::size_t turn = 0; turn < samplers.size(); ++turn) {
      const std::size_t i = round % 2 == 0 ? turn : samplers.size() - 1 - turn;
      samples[i].push_back(samplers[i]());
      spent_us += samples[i].back();
      if (witness) interrupted[i] += witness().interrupted;
    }
  }
  std::vector<Measurement> results;
  for (std::size_t i = 0; i < samples.size(); ++i)
    results.push_back(
        {median(samples[i]), median_absolute_deviation(samples[i]), std::ssize(samples[i]), interrupted[i]});
  return results;
}

}  // namespace convtune
