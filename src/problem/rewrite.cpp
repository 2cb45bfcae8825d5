// See rewrite.h.
#include "problem/rewrite.h"

namespace convtune {
namespace {

bool is_point_in_frame(const ConvProblem& a) {
  return a.r == 1 && a.s == 1 && a.stride_h == 1 && a.stride_w == 1 && a.pad_top == 0 && a.pad_bottom == 0 &&
         a.pad_left == 0 && a.pad_right == 0;
}

bool takes_each_frame(const ConvProblem& a) {
  return a.t == 1 && a.stride_d == 1 && a.pad_front == 0 && a.pad_back == 0;
}

}  // namespace

ConvProblem in_plane(const ConvProblem& a) {
  if (!a.has_depth() || a.cache > 0) return a;
  ConvProblem plane = a;
  plane.d = plane.t = plane.stride_d = plane.dilation_d = 1;
  plane.pad_front = plane.pad_back = 0;
  if (is_point_in_frame(a)) {
    plane.h = a.d, plane.w = a.h * a.w;
    plane.r = a.t, plane.stride_h = a.stride_d, plane.dilation_h = a.dilation_d;
    plane.pad_top = a.pad_front, plane.pad_bottom = a.pad_back;
    plane.dilation_w = 1;
    return plane;
  }
  if (takes_each_frame(a) && a.layout == Layout::nhwc) {
    plane.n = a.n * a.d;
    return plane;
  }
  return a;
}

ConvProblem joined(const ConvProblem& a) {
  ConvProblem whole = a;
  whole.d += a.cache, whole.pad_front -= a.cache, whole.cache = 0;
  return whole;
}

FrameRuns frame_runs(const ConvProblem& a) {
  if (a.layout == Layout::nhwc) return {a.n, a.h * a.w * a.c};
  return {a.n * a.c, a.h * a.w};
}

}  // namespace convtune
