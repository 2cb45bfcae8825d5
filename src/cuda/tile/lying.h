// Weights that a kernel reads as they lie, channels last: [filter][tap][channel] of the layer, and nothing is
// packed. To a gradient of x what sums go over, the layer's filters, is the outer extent, which tensor cores
// take from shared memory as well, and a tap of the turned filter is a coordinate. To a layer itself a
// filter's channels of a tap are a row, as packed ones are.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"

namespace convtune {

inline constexpr const char* kLyingMeaning = "1: reads weights as they lie, channels last";

// The tap of the layer's filter that a tap of a forward part is (problem/forward_parts.h), of each residue.
struct LyingWeights {
  int taps = 0;  // taps of the layer's filter; 0: weights are packed
  int first = 0, step_d = 0, step_h = 0, step_w = 0, residue_d = 0, residue_h = 0, residue_w = 0;
  bool rows = false;  // true: a layer itself, whose taps are the filter's own: the numbers above are not read
  static constexpr const char* kName = "LyingWeights";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("taps", self.taps), field("first", self.first);
    field("step_d", self.step_d), field("step_h", self.step_h), field("step_w", self.step_w);
    field("residue_d", self.residue_d), field("residue_h", self.residue_h);
    field("residue_w", self.residue_w);
    if (self.rows) field("rows", self.rows);
  }

  // `tap`: of the part, counted through frames, rows and columns.
  constexpr int tap_of(const ConvExtents& a, int residue, int tap) const {
    const ConvLies& lies = a.lies;
    return first + residue / (lies.residues_w * lies.residues_h) * residue_d +
           residue / lies.residues_w % lies.residues_h * residue_h + residue % lies.residues_w * residue_w +
           tap / (a.r * a.s) * step_d + tap / a.s % a.r * step_h + tap % a.s * step_w;
  }

  // Filters that one box brings, of the `part` filters that a block of a cluster brings.
  static constexpr int box_filters(int part) { return part > kMostBox ? part / 2 : part; }
  static constexpr int kMostBox = 256;

  // ---- A part's weights by their numbers, its filters being residues of channels of dx ----
  static constexpr int kBlock = 64;  // channels of a box, 128 bytes
  // Tells whether TMA can bring `filters` filters of a part, in blocks that are each of one residue.
  constexpr bool can_load(const ConvExtents& a, int filters) const {
    if (rows) return !a.residual && !a.lies.between() && a.group_channels() % 8 == 0 && filters % 16 == 0;
    const bool apart = a.lies.residues() == 1 || a.lies.uneven();  // each has tiles of its own
    return taps > 0 && !a.residual && a.group_results() % 8 == 0 && filters % 16 == 0 &&
           (apart || (a.group_results() % kBlock == 0 && filters % kBlock == 0));
  }
  constexpr Packed packed(const ConvExtents& a) const {
    if (rows) return Packed::halves(1LL * a.k * a.taps() / 2, 0, 0, false);
    return Packed::halves(1LL * a.c * taps * a.group_results() / 2, 0, 0, false);
  }
  // The place of a part's weight, whose number is as of [filter][channel][tap].
  constexpr long long half_of(const ConvExtents& a, long long weight) const {
    const int all = a.t * a.r * a.s, channel = static_cast<int>(weight / all % a.group_channels());
    if (rows) return (weight / a.taps() * all + weight % all) * a.group_channels() + channel;
    const int filter = static_cast<int>(weight / all / a.group_channels()), rest = filter % a.group_filters();
    const long long k = filter / a.group_filters() * a.group_channels() + channel;
    const int tap = tap_of(a, rest / a.group_results(), static_cast<int>(weight % all));
    return (k * taps + tap) * a.group_results() + rest % a.group_results();
  }
  // Tells whether weights are multiplied by anything that is not an x of theirs: zeros outside of it, or
  // other groups' channels. Where none is, an infinity is one, and nothing need be computed again.
  static constexpr bool meets_padding(const ConvExtents& a) {
    return a.t * a.r * a.s > 1 || a.groups > 1 || a.pad_top > 0 || a.pad_left > 0 || a.pad_front > 0 ||
           a.p > a.h || a.q > a.w || a.z > a.d;
  }
};

}  // namespace convtune
