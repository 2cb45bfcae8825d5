#include "cuda/launch/tile_work.h"

#include <algorithm>
#include <cmath>

namespace convtune::cuda {

void store_in_pieces(TileWork& work, double outputs, double piece, double bytes) {
  constexpr double kSectorBytes = 32;
  work.stored_bytes = bytes * outputs;
  work.pieces = outputs / piece;
  work.part_sectors = std::fmod(piece * bytes, kSectorBytes) == 0 ? 0 : work.pieces * 2 * 7 / 8;
}

double read_bytes(const ConvProblem& a) {
  if (a.direction == Direction::backward_data)
    return static_cast<double>(size_of(a.dtype.y) * a.output_elements() +
                               (a.residual ? size_of(a.dtype.x) * a.input_elements() : 0));
  const auto touched = [](std::int64_t extent, std::int64_t outputs, std::int64_t filter) {
    return static_cast<double>(std::min(extent, outputs * filter));
  };
  // Columns in between lie in sectors that are read anyhow, unless a pixel has several.
  const double columns = a.layout == Layout::nhwc ? touched(a.w, a.q(), a.s) : static_cast<double>(a.w);
  const double residual =
      a.residual ? static_cast<double>(size_of(a.dtype.y) * a.n * a.k * a.z() * a.p() * a.q()) : 0;
  const double gradient = a.direction == Direction::backward_weights
                              ? static_cast<double>(size_of(a.dtype.y) * a.output_elements())
                              : 0;
  return static_cast<double>(size_of(a.dtype.x) * a.n * a.c) * touched(a.d, a.z(), a.t) *
             touched(a.h, a.p(), a.r) * columns +
         residual + gradient;
}

void add_epilogue(Phase& store, const ConvExtents& conv, double outputs) {
  struct Cost {
    double instructions, specials;
  };
  const Cost cost = [&]() -> Cost {
    switch (conv.activation) {
      case ConvActivation::none:
        return {0, 0};
      case ConvActivation::relu:
        return {1, 0};
      case ConvActivation::clip:
      case ConvActivation::leaky_relu:
        return {2, 0};
      case ConvActivation::hardswish:
        return {5, 0};
      case ConvActivation::silu:
        return conv.eager ? Cost{18, 2} : Cost{7, 1.5};
      case ConvActivation::sigmoid:
        return conv.eager ? Cost{16, 2} : Cost{5, 2};
      case ConvActivation::gelu_tanh:
        return conv.eager ? Cost{22, 2} : Cost{9, 1.5};
      case ConvActivation::gelu_erf:
        return conv.eager ? Cost{27, 1} : Cost{13, 1};
    }
    return {0, 0};
  }();
  store.instructions += outputs / 32 * cost.instructions;
  store.specials += outputs / 32 * cost.specials;
}

void add_store(TileWork& work, const Phase& store, bool beside_products) {
  if (!beside_products) {
    work.store = store;
    return;
  }
  work.multiply.instructions += store.instructions;
  work.multiply.wavefronts += store.wavefronts;
  work.multiply.specials += store.specials;
  work.multiply.l2_bytes += store.l2_bytes;
  work.store_beside = true;
}

unsigned resident_grid(long long blocks, int multiprocessors, int cluster) {
  const int whole = std::max(multiprocessors / cluster, 1) * cluster;
  return static_cast<unsigned>(std::min<long long>(blocks, whole));
}

long long clustered_blocks(const Target& target, const BlockNeeds& block, int cluster) {
  const int some = cluster > 2 ? target.multiprocessors * 7 / 8 : target.multiprocessors;
  return 1LL * some * occupancy(target, block).blocks / cluster * cluster;
}

double outputs_of(const ConvExtents& a) {
  return static_cast<double>(a.n) * a.k * a.z * a.p * a.q;
}

}  // namespace convtune::cuda
