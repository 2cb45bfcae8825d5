// Elements of dx that no tap meets, as the kernel that stores them takes them (bare_residues.cuh).
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"

namespace convtune {

struct BareResidues {
  static constexpr int kThreads = 256;
  static constexpr int kMostStride = 62;  // whose residues have a bit each
  static constexpr int kPiece = 4096;     // elements of a plane that a block has, in NCHW
  static constexpr int kUnits = 8;        // of elements that a thread has, else
  ConvExtents conv;                       // dx as a y, with its epilogue
  int stride_d = 1, stride_h = 1, stride_w = 1, pad_d = 0, pad_h = 0, pad_w = 0;
  long long met_d = 1, met_h = 1, met_w = 1;  // bits: residues that some tap meets
  int group_filters = 1;                      // from group to group in the packed biases
  static constexpr const char* kName = "BareResidues";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("stride_d", self.stride_d), field("stride_h", self.stride_h), field("stride_w", self.stride_w);
    field("pad_d", self.pad_d), field("pad_h", self.pad_h), field("pad_w", self.pad_w);
    field("met_d", self.met_d), field("met_h", self.met_h), field("met_w", self.met_w);
    field("group_filters", self.group_filters);
  }

  constexpr long long elements() const { return 1LL * conv.n * conv.k * conv.z * conv.p * conv.q; }
  // Planes of NCHW are cut into pieces of one channel and frame, where they are a block's worth at all.
  constexpr int plane() const { return conv.p * conv.q; }
  constexpr bool by_planes() const {
    return !conv.nhwc && 1LL * conv.p * conv.q >= kThreads && 1LL * conv.p * conv.q < kInt;
  }
  constexpr int pieces() const { return ceil_div(plane(), kPiece); }
  // Elements of a pixel that are stored at once: 16 bytes of them, channels last.
  constexpr int unit() const {
    const int most = 16 / size_of(conv.y_type);
    return conv.nhwc && conv.k % most == 0 ? most : 1;
  }
  constexpr long long units() const { return elements() / unit(); }
  constexpr long long blocks() const {
    return by_planes() ? 1LL * conv.n * conv.k * conv.z * pieces() : ceil_div(units(), kThreads * kUnits);
  }

  constexpr bool is_met(int frame, int row, int column) const {
    return is_met(met_d, frame + pad_d, stride_d) && is_met(row, column);
  }
  constexpr bool is_met(int row, int column) const {  // in a frame that is met
    return is_met(met_h, row + pad_h, stride_h) && is_met(met_w, column + pad_w, stride_w);
  }
  // Larger strides have no residue that is not met (problem/forward_parts.h).
  static constexpr bool is_met(long long met, int position, int stride) {
    return stride > kMostStride || (met >> position % stride & 1) != 0;
  }
  constexpr int bias_of(int channel) const {
    const int results = conv.k / conv.groups;
    return channel / results * group_filters + channel % results;
  }
  static constexpr int kInt = 1 << 30;
};

}  // namespace convtune
