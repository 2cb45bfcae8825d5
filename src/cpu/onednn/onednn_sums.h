// oneDNN's sums with the activation by vectors of our own, in a pass behind them. oneDNN's sigmoids take up
// to nine times as long as the convolution before them (1x1 layers of few channels in bf16). One more way of
// a search, and not the vendor's: what it gains over oneDNN's fused form is proven as any gain is.
#pragma once

#include "contract/backend.h"

namespace convtune::cpu {

const Algorithm* onednn_sums();  // null where oneDNN was not found

}  // namespace convtune::cpu
