// The vector code of the depthwise convolution: compiled once for each instruction set, chosen at run time
// through this table of plain functions. depthwise.cpp, the only caller, knows no vectors. x is read where it
// lies, and what lies beside the image is not read. Elements T of x, y and the residual are floats or Bf16.
#pragma once

#include <cstdint>

#include "cpu/bounds.h"
#include "cpu/elements.h"

namespace convtune::cpu {

// Channels first: the lanes of a vector are columns of one plane.
//   y[j * y_step + l] = act(bias + residual[j * y_step + l]
//                                + sum over r, s of weights[s * filter_rows + r]
//                                      * x[first_row + j * stride_h + r * dilation_h]
//                                         [first_col + l * stride_w + s * dilation_w])
//   j in [0, rows), l in [0, count); x is 0 outside [0, height) by [0, width); residual may be null
template <class T>
struct PlaneArgs {
  const T* x;
  std::int64_t height, width, first_row, first_col;
  std::int64_t filter_rows, filter_cols, dilation_h, dilation_w;
  const float* weights;
  float bias;
  Bounds bounds;
  const T* residual;
  T* y;
  std::int64_t y_step, rows, count;
};
template <class T>
using PlaneKernel = void (*)(const PlaneArgs<T>&);

// Channels last: the lanes are channels. Of pixels j in [0, pixels of the kernel):
//   y[j * y_step + c] = act(bias[c] + residual[j * y_step + c]
//                                + sum over taps t of weights[t * weight_step + c]
//                                      * x[origin + taps[t] + j * x_step + c])
//   c in [done, channels); residual may be null, or y
// where a clipped kernel leaves out those taps that lie beside the image: first_col + tap_cols[t] + j *
// col_step outside [0, width).
template <class T>
struct PixelArgs {
  const T* x;
  std::int64_t origin, x_step;
  const std::int64_t *taps, *tap_cols;
  std::int64_t tap_count, first_col, col_step, width;
  std::int64_t fetch, fetch_rows, row_step;  // rows of x, row_step apart, that are brought to the cache
  const T* weights;
  std::int64_t weight_step;
  const T* bias;
  std::int64_t done, channels;  // channels: at least a vector of them, kLanes words
  Bounds bounds;
  const T* residual;
  T* y;
  std::int64_t y_step;
};
template <class T>
using PixelKernel = void (*)(const PixelArgs<T>&);

constexpr int kMostPixels = 8, kMostRows = 8;  // of register tiles

// A vector of columns of a kernel of planes has so many accumulators.
template <class T>
constexpr int accumulators(std::int64_t stride_w) {
  return sizeof(T) == 2 && stride_w == 1 ? 2 : 1;
}

// What a kernel of planes is made for.
struct PlaneTile {
  std::int64_t filter_rows, stride_h, stride_w, dilation_h;
  int rows;  // of outputs: 1, 2, 4 or 8
};

template <class T>
struct DepthwiseKernels {
  int lanes;  // floats in a vector
  // The most vectors of columns in a register tile, each of lanes * accumulators() columns: 0 where there is
  // none. With one row there is one for every filter, with more rows for filters of 3, 5 and 7 rows without
  // dilation; strides along a row are 1 or 2.
  std::int64_t (*plane_vectors)(const PlaneTile&);
  PlaneKernel<T> (*plane)(const PlaneTile&, std::int64_t vectors);  // vectors: at most as many
  PixelKernel<T> (*pixels)(std::int64_t pixels, bool clipped);
};

// Null where this build has no code for that width (cpu/instruction_sets.h).
template <class T>
const DepthwiseKernels<T>* depthwise_kernels(int vector_bits);

}  // namespace convtune::cpu
