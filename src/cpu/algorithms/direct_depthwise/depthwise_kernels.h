// The vector code of the depthwise convolution: compiled once for each instruction set, chosen at run time
// through this table of plain functions. depthwise.cpp, the only caller, knows no vectors. x is read where it
// lies, and what lies beside the image is not read. Elements T of x, y and the residual are floats or Bf16.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "convtune/problem.h"
#include "cpu/tile/elements.h"
#include "cpu/tile/tile_epilogue.h"

namespace convtune::cpu {

// Channels first: the lanes of a vector are columns of one plane.
//   y[j * y_step + l] = act(bias + residual[j * y_step + l]
//                                + sum over f, r, s of weights[(f * filter_cols + s) * filter_rows + r]
//                                      * plane f of x[first_row + j * stride_h + r * dilation_h]
//                                                    [first_col + l * stride_w + s * dilation_w])
//   j in [0, rows), l in [0, count); x is 0 outside [0, height) by [0, width); residual may be null. Planes
//   are `frame_step` elements apart: as many of the filter's frames as lie in x, one where there is no depth
template <class T>
struct PlaneArgs {
  const T* x;
  std::int64_t frames, frame_step;  // with PlaneTile::slides one frame
  std::int64_t height, width, first_row, first_col;
  std::int64_t filter_rows, filter_cols, dilation_h, dilation_w;
  const float* weights;
  float bias;
  Epilogue epilogue;
  const T* residual;
  T* y;
  std::int64_t y_step, rows, count;
  // Whole lines go past the caches. With kAllRows, where rows have no gaps or are whole lines; else with one
  // row alone.
  bool stream;
};
template <class T>
using PlaneKernel = void (*)(const PlaneArgs<T>&);

// Channels last: the lanes are channels, or filters of groups of several channels, whose words (f32 or pairs
// of bf16) are multiplied one after the other. Of pixels j in [0, pixels of the kernel):
//   y[j * y_step + c] = act(bias[c] + residual[j * y_step + c]
//                                + sum over frames f, rows r, words k, columns s of weights[f][r][k][s][c]
//                                      * word k of c's group in x[origin + f * frame_step + r * row_step
//                                                                 + (j * stride + s * dilation) * x_step
//                                                                 ...])
//   c of vectors [first_vector, end_vector), of which the last one ends with `channels`; columns first_col +
//   j * stride + s * dilation outside [0, width) are left out; residual may be null, or y
template <class T>
struct PixelArgs {
  const T* x;
  std::int64_t origin, x_step, row_step, frame_step;
  std::int64_t frames, filter_rows, filter_cols, stride, dilation;  // frames, rows: those in the image
  std::int64_t phases;                                              // of x that slides: tap_phases()
  std::int64_t first_col, width;
  std::int64_t fetch, fetch_rows, fetch_step;  // rows of x, fetch_step apart, that are brought to the cache
  std::int64_t first_vector, end_vector, channels;  // channels: at least a vector of them, kLanes words
  // Strides in a vector [frame][row][word][column][part][lane], weight_step floats or pairs from vector to
  // vector and frame_weights from frame to frame; bias of a vector [part][lane]. Parts: bf16's even and odd
  // channels, or with groups the lower and the upper half.
  const float *weights, *bias;
  std::int64_t weight_step, frame_weights;
  std::int64_t words;
  const std::int32_t* shuffle;  // with groups [word][part][lane]: which of a vector's words it multiplies
  Epilogue epilogue;
  const T* residual;
  T* y;
  std::int64_t y_step;
  bool stream;  // vectors are whole lines and go past the caches
};
template <class T>
using PixelKernel = void (*)(const PixelArgs<T>&);

// What a kernel of pixels is made for.
struct PixelTile {
  std::int64_t filter_cols, stride_w, dilation_w;
  bool grouped;  // several channels a group
  bool slides;   // a value of x is loaded once for all pixels that it adds to (PixelArgs::phases)
};

constexpr int kMostPixels = 14, kMostRows = 8;  // of register tiles
constexpr int kMostFixedPixels = 8;             // of those that x does not slide through
constexpr int kAllRows = 0;                     // no tile: any number of rows, one after the other

// Tap s of a filter's row reads where tap s - phases does for the next output of a register tile. Outputs lie
// `step` columns of x apart; where that is no multiple of the dilation, no two taps meet.
constexpr std::int64_t tap_phases(std::int64_t taps, std::int64_t dilation, std::int64_t step) {
  return step % dilation == 0 ? std::min(taps, step / dilation) : taps;
}

// A vector of columns of a kernel of planes has so many accumulators.
template <class T>
constexpr int accumulators(std::int64_t stride_w) {
  return sizeof(T) == 2 && stride_w == 1 ? 2 : 1;
}

// What a kernel of planes is made for.
struct PlaneTile {
  std::int64_t filter_rows, filter_cols, stride_h, stride_w, dilation_h, dilation_w;
  int rows;     // of outputs: 1, 2, 4 or 8, or kAllRows
  bool bounds;  // Epilogue::has_bounds(): with kAllRows other activations may have kernels of their own
  bool slides;  // with one row: a vector of x is loaded once for all outputs that it adds to
};

// Kernels for 1 to `vectors` vectors of columns; each vector has lanes * accumulators() columns.
constexpr int kMostPlaneVectors = 14;
template <class T>
struct PlaneKernels {
  std::int64_t vectors;
  std::array<PlaneKernel<T>, kMostPlaneVectors> of_vectors;
};

// A phase of few taps is not worth its start, the less so at the edges of a row.
inline bool pixels_slide(const ConvProblem& a) {
  return a.c == a.groups && tap_phases(a.s, a.dilation_w, a.stride_w) * (a.h == 1 ? 4 : 16) <= a.s;
}
inline bool planes_slide(const ConvProblem& a) {
  constexpr std::int64_t kLongFilter = 16, kLongRow = 1024;
  const bool one_row = a.r == 1 && a.h == 1 && a.p() == 1 && a.pad_top == 0 && !a.has_depth();
  return one_row && (a.s > kLongFilter || a.q() >= kLongRow);
}

inline PixelTile pixel_tile(const ConvProblem& a) {
  return {a.s, a.stride_w, a.dilation_w, a.c != a.groups, pixels_slide(a)};
}
inline PlaneTile plane_tile(const ConvProblem& a, int rows) {
  return {a.r,
          a.s,
          a.stride_h,
          a.stride_w,
          a.dilation_h,
          a.dilation_w,
          rows,
          epilogue_of(a).has_bounds(),
          planes_slide(a)};
}

template <class T>
struct DepthwiseKernels {
  int lanes;  // floats in a vector
  // Null where there are none. With one row there are some for every filter, with more rows for filters of 3,
  // 5 and 7 rows without dilation; strides along a row are 1 or 2. For all rows there are some of f32 with
  // AVX-512 and AVX2, for square filters of 3, 5 and 7 with strides of 1 and 2 but 7 by 2.
  const PlaneKernels<T>* (*planes)(const PlaneTile&);
  // Null where registers do not hold so many pixels, or this build multiplies no pairs of bf16, or x slides
  // and others are enough; 1 pixel always fits.
  PixelKernel<T> (*pixels)(const PixelTile&, std::int64_t pixels);
};

// Null where this build has no code for that width (cpu/tile/instruction_sets.h).
template <class T>
const DepthwiseKernels<T>* depthwise_kernels(int vector_bits);

}  // namespace convtune::cpu
