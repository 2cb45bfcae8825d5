// cuDNN as an algorithm: the incumbent on a GPU.
#pragma once

#include <string>

#include "contract/backend.h"

namespace convtune::cuda {

const Algorithm* cudnn();    // cudnn.cpp; null where cuDNN 9 cannot be loaded
bool cudnn_is_unloadable();  // cudnn_api.cpp; whether its file is there and could not be loaded

}  // namespace convtune::cuda
