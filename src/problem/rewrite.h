// Rewrites a problem as another one that gives the same numbers from the same memory, so that an algorithm
// for fewer dimensions, or for less, computes it: no tensor moves, and weights are packed as they lie.
#pragma once

#include "convtune/problem.h"

namespace convtune {

// A 3-D problem as a 2-D one, where there is such a one; any other problem as it is.
//
//   filter         layout   condition                           becomes
//   t x 1 x 1      both     no stride or padding in a frame     image of d rows of h*w columns, filter t x 1
//   1 x r x s      NHWC     no stride or padding between frames n*d images of h x w, filter r x s
//
// Rows of the first form are frames, so its strides, dilations and paddings between frames are those of rows.
ConvProblem in_plane(const ConvProblem& problem);

// The problem without a cache that has the cache's frames as its x's first: what an algorithm computes that
// joins the two first.
ConvProblem joined(const ConvProblem& problem);

// Frames as they lie: `count` runs, one an image or in NCHW one a channel of an image, in each of which
// frames of `frame` elements follow each other.
struct FrameRuns {
  std::int64_t count, frame;
};
FrameRuns frame_runs(const ConvProblem& problem);  // frames of x and of the cache

}  // namespace convtune
