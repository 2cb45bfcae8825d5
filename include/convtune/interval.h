// Interval: a range of numbers that holds an unknown one with some confidence.
#pragma once

#include "convtune/language.h"

namespace convtune {

struct Interval {
  double low = 0, high = 0;
};

}  // namespace convtune
