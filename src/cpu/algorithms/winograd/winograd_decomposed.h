// Winograd's convolution with filters of any size and stride, of NCHW tensors: the parts of a filter
// (winograd_parts.h) are more channels of the products that they have. Both of its input transforms end in V:
//
//   rows -> B of each part down them -> phases of two strides -> B of each part along them = V   (down first)
//   rows -> phases of two strides -> B of each part along them -> B of each part down = V        (along
//   first)
//
// Down first goes strip by strip in registers for filters that have such a kernel (winograd_strip.h); else it
// goes by way of memory. It asks for fewer instructions where a row of tiles has many vectors, whose first
// and last are parts of V's; along first has its rows side by side before it makes whole vectors of V of
// them.
#pragma once

#include <span>
#include <vector>

#include "cpu/algorithms/winograd/winograd_executable.h"
#include "cpu/tile/joined_rows.h"

namespace convtune::cpu {

class WinogradDecomposed : public WinogradExecutable {
 public:
  WinogradDecomposed(const ConvProblem& problem, const WinogradConfig& config, int threads);

 protected:
  std::int64_t elements_;  // elements of x

  // V is [block][product][part of a channel][tile of the block].
  float* block_of(float* memory, std::int64_t first) const {
    return memory + geometry_.transformed + first * geometry_.first_channel.back() * kernels_.lanes;
  }
  // Into the second cache.
  static void fetch(const float* from, std::int64_t count) {
    constexpr std::int64_t kLine = 16;
    for (std::int64_t i = 0; i < count; i += kLine) __builtin_prefetch(from + i, 0, 2);
  }

 private:
  void compute(const WinogradTask& task, const float* x, const float* packed, float* memory,
               const Outputs<float>& outputs) const override;
  void begin(float* memory) const override;
  void end(float* memory) const override;
  // One for each output channel of a group, where y begins within a line and goes past the caches.
  JoinedRows* joined_rows(float* memory) const;
  void add_pieces(const WinogradRun& run, std::vector<WinogradPiece>& pieces) const;
  std::int64_t product_step(std::int64_t width) const {
    return geometry_.chunk_filters * width * kernels_.lanes;
  }
  void multiply_block(const WinogradTask& task, std::int64_t from, std::int64_t end, std::int64_t first,
                      std::int64_t width, const float* packed, float* memory) const;
  void finish_block(const WinogradTask& task, std::int64_t from, std::int64_t end, std::int64_t width,
                    std::span<const WinogradPiece> pieces, const float* x, const float* packed, float* memory,
                    const Outputs<float>& outputs) const;
  void finish_rows(std::span<const WinogradPiece> pieces, std::int64_t k, const float* from,
                   std::int64_t width, const float* x, const float* packed, float* memory,
                   const Outputs<float>& outputs) const;

  std::vector<WinogradMultiply> multiply_;  // kernels for blocks of each width
  std::int64_t p_, q_;                      // the problem's, which are divisions
};

std::unique_ptr<Executable> winograd_down_first(const ConvProblem& problem, const WinogradConfig& config,
                                                int threads);
std::unique_ptr<Executable> winograd_along_first(const ConvProblem& problem, const WinogradConfig& config,
                                                 int threads);

}  // namespace convtune::cpu
