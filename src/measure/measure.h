// Times several ways of doing the same work fairly: in turns, so that a machine that slows down
// slows all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "convtune/contest.h"

namespace convtune {

struct Measurement {
  double median_us = 0, mad_us = 0;
  std::int64_t n = 0, interrupted = 0;  // samples; of them those that other work interrupted
};

// Rounds of one sample each, in an order that is reversed every other round, until `seconds` have
// gone by in samples or it is `late`; at least min_rounds (unless cancelled), at most max_rounds. What a
// device does beside its samples (a flush, a sample that was disturbed and taken again) is not counted.
// `witness`: of the sample that was taken last; none: nobody knows.
std::vector<Measurement> measure_in_turns(const std::vector<std::function<double()>>& samplers,
                                          double seconds, const std::function<bool()>& cancelled = {},
                                          int min_rounds = 5, int max_rounds = 5000,
                                          const std::function<bool()>& late = {},
                                          const std::function<Witness()>& witness = {});

}  // namespace convtune
