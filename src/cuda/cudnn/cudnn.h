// cuDNN as an algorithm: the incumbent on a GPU.
#pragma once

#include <string>

#include "contract/backend.h"

namespace convtune::cuda {

const Algorithm* cudnn();  // cudnn.cpp; null where cuDNN 9 cannot be loaded

}  // namespace convtune::cuda
