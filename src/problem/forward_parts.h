// Rewrites backward data, and so a transposed layer, as forward convolutions of dy that a forward kernel
// computes: their weights are numbers of the filter in another order, and their outputs lie between each
// other in dx.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "convtune/problem.h"

namespace convtune {

// Numbers of a tensor in another order: the result is dense, with these extents, the outermost first, and its
// element stands at `begin` + the sum of index * step in the tensor. Of a filter, residues along an axis from
// `whole` on lack the first tap: it is 0 there.
struct Gathering {
  static constexpr std::size_t kAxes = 9, kResidues = 1, kTaps = 6;  // first of three axes each
  std::int64_t begin = 0;
  std::array<std::int64_t, kAxes> extents{}, steps{};
  std::array<std::int64_t, 3> whole{};  // 0: none lacks it

  std::int64_t elements() const;
  std::int64_t source_of(std::int64_t i) const;  // -1: of none
  bool operator==(const Gathering&) const = default;
};

// The place of a part's outputs along an axis of dx: that of residue `r` at position i lies at i * stride + r
// * step - crop, and is left out where that is outside of [0, extent). Residues from `whole` on lack the
// filter's first tap, unless that is 0.
struct PartAxis {
  std::int64_t residues = 1, stride = 1, crop = 0, extent = 1, whole = 0, step = 1;
  bool begins_late = false;
  // Positions before a residue's first output, which the part does not have where residues begin late.
  std::int64_t late(std::int64_t residue) const;
  bool operator==(const PartAxis&) const = default;
};

// A forward problem whose x is dy. Its filters are, in each group, `residues()` times the group's channels of
// dx, the columns' residues faster than the rows' and those faster than the frames'.
struct ForwardPart {
  ConvProblem problem;
  PartAxis depth, height, width;
  Gathering weights, bias;

  std::int64_t residues() const { return depth.residues * height.residues * width.residues; }
  // Tells whether the part's output is dx as it lies.
  bool is_whole() const;
};

// Choices of how a problem is cut. `joined`: rows and columns of one group are one part each, some of whose
// residues lack the first tap, for kernels that leave it out; with `grouped` columns of several groups, too;
// without `rows` columns alone. `late`: of those, residues have as many positions as the longest has
// outputs, and begin each with its first (PartAxis::late()). `bare`: residues without a tap are no part, and
// somebody else writes them (met_residues()).
struct Cut {
  bool joined = false, grouped = false, bare = false, rows = true, late = false;
};

// The parts of a backward data problem; together they write each element of dx once, but for bare residues.
// One part where strides divide filters; else two along an axis: residues with one tap more than the others.
// The part with the most products comes first. Empty for other directions; without `bare` for strides over
// dilated filters, and for strides beyond the filter, too.
//
// Along an axis with stride s and dilation e, dx at x = s * p + e * r - pad meets dy at p by tap r: all x of
// a residue of s have the same taps, each s / gcd(s, e)-th of the filter, on pixels of dy that are e / gcd(s,
// e) apart.
std::vector<ForwardPart> forward_parts(const ConvProblem& problem, Cut cut = {});
// Cuts as forward_parts(), without outputs that lie outside of dx: residues whose first positions differ
// are parts of their own where together they have a sixteenth of positions more. A 4x4 filter with strides
// of 2 and padding of 1 takes 9 by 9 for 8 by 8. A part of one residue has none of them in any case.
std::vector<ForwardPart> tight_parts(const ConvProblem& problem, Cut cut = {});

// Residues, for each axis, of (x + pad) modulo the stride that some tap meets, as bits; all of them for a
// stride beyond kMostBareStride, of which no part is made where some are bare.
std::array<std::uint64_t, 3> met_residues(const ConvProblem& problem);
bool has_bare_residues(const ConvProblem& problem, bool of_columns = true);
constexpr std::int64_t kMostBareStride = 62;

}  // namespace convtune
