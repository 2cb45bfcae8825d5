// A 3-D problem as 2-D ones, for algorithms without a third dimension: every frame of outputs is an image
// whose channels are those of all frames of x that it reads.
//
//   NCHW   channel c of tap t is channel c * t's + t of the image: weights lie as they do
//   NHWC   in each group, channel c of tap t is channel t * c's + c
//
// An image is gathered in a core's cache, which costs less than a tenth of its products where there are 32
// filters or more; frames that are padding are zeros there.
#pragma once

#include <functional>
#include <memory>

#include "contract/backend.h"
#include "cpu/tile/memory_plan.h"

namespace convtune::cpu {

// The images of a forward problem with a depth; any other problem, and one of more elements than there are,
// as it is.
ConvProblem frame_images(const ConvProblem& problem);

// Tells whether x and y are not the images as they lie.
bool are_gathered(const ConvProblem& problem);
// The images that an executable is built for at a time: one of them where they are gathered, else all.
ConvProblem built_images(const ConvProblem& problem);

// Memory of a thread that gathers an image: nothing where x and y are the images as they lie, or there is no
// depth.
void take_frame_images(const ConvProblem& problem, MemoryPlan& memory);
// Cycles over all threads in which images are gathered and their outputs copied.
double frame_image_cycles(const ConvProblem& problem);

// Makes an executable of images for `threads` threads.
using MakeOfImages = std::function<std::unique_ptr<Executable>(const ConvProblem& images, int threads)>;
// An executable of `problem` by those of its images: of one on each thread where there are many, else of one
// image after the other on all threads.
std::unique_ptr<Executable> frame_images_executable(const ConvProblem& problem, const MakeOfImages& make,
                                                    int threads);

}  // namespace convtune::cpu
