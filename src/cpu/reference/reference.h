// The algorithm that takes every problem: plain loops in double precision.
#pragma once

#include "contract/backend.h"

namespace convtune::cpu {

const Algorithm& reference();

}  // namespace convtune::cpu
