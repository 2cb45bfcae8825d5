// What stands between tensors in memory and kernels that multiply in f32: values of any element type read
// into rows of words [pixel][channel], and sums finished by the epilogue and stored. Compiled once for each
// instruction set, chosen at run time through this table of plain functions.
#pragma once

#include <array>
#include <cstdint>

#include "convtune/problem.h"
#include "cpu/tile/elements.h"
#include "cpu/tile/gather.h"

namespace convtune::cpu {

// What one 32-bit word of a row holds: a channel as f32, or two neighbouring bf16 channels, the first of them
// in the lower half (and 0 behind an odd last one).
enum class Words { f32, bf16_pairs };

// to[j * to_step + c] = the word of channel(s) c of pixel j, and zeros behind the last of each up to a whole
// vector, where no other pixel's words are: behind the last pixel there must be room for that. Steps of x are
// in elements; one of the two is 1, or both may be anything.
struct ReadArgs {
  DType type;
  Words words;  // bf16_pairs: of bf16 alone
  const void* x;
  std::int64_t pixel_step, channel_step, pixels, channels;
  float* to;
  std::int64_t to_step;
};

// y = the problem's epilogue of [pixels][channels] sums. Rows of sums and the bias are read in whole vectors.
struct FinishArgs {
  const float* sums;
  std::int64_t sums_step, pixels, channels;
  const float* bias;
  const void* residual = nullptr;  // as y
  void* y = nullptr;
  const std::int64_t* places;  // finish_pixels: the element of y of each pixel's channel 0
  std::int64_t place, plane;   // finish_planes: that of pixel 0, and elements from one channel to the next
  const ConvProblem* problem;
  // y is bf16, rounded once, by the instruction of processors with avx512_bf16: denormal numbers become 0, as
  // operands of their products do. Of 512 bits.
  bool by_instruction = false;
  // Lines of the cache that finish_pixels makes whole go past the caches: of f32, and of bf16 where
  // by_instruction; those of finish_planes where may_stream_planes(). y begins at an element. fence()
  // follows.
  bool stream = false;
  // Else the line that lies so many elements behind each stored vector is fetched, to be written: where
  // by_instruction. 0: none is.
  std::int64_t ahead = 0;
};
using Finish = void (*)(const FinishArgs&);

// weave() of pixels that lie side by side (weave.h).
struct WeaveArgs {
  const Bf16* planes;
  std::int64_t channels, channel_step, pixels;
  Bf16* to;
  std::int64_t to_step;
};

// Whole lines of the cache, to_step floats apart, each of the last `words` of a line at `ends` and the first
// of one at `begins`; lines there follow each other.
struct JoinArgs {
  const float *ends, *begins;
  std::int64_t words, lines;
  float* to;
  std::int64_t to_step;
  bool stream;  // past the caches
};

constexpr int kActivations = static_cast<int>(kLastActivation) + 1;

struct TensorKernels {
  int lanes;  // floats in a vector
  void (*read)(const ReadArgs&);
  void (*gather)(const GatherArgs&);
  void (*weave)(const WeaveArgs&);
  std::array<Finish, kActivations> finish_pixels, finish_planes;  // by activation: NHWC, NCHW
  // Copies so many lines of the cache past the caches, from anywhere.
  void (*put_lines)(const void* from, std::int64_t lines, void* to);
  void (*join_lines)(const JoinArgs&);  // of vectors of 512 bits
  // Orders stores past the caches before whatever follows.
  void (*fence)();
};

// Whether this processor has an instruction that rounds the problem's outputs (FinishArgs::by_instruction).
bool rounds_by_instruction(const ConvProblem& problem);

// Whether finish_pixels makes whole lines of the cache of them, so that they may go past the caches: of bf16,
// if it rounds by that instruction.
bool may_stream(const ConvProblem& problem);
// The same of finish_planes: of bf16, rounded by that instruction, without a residual, in planes of whole
// lines.
bool may_stream_planes(const ConvProblem& problem);

// Null where this build has no code for that width (cpu/tile/instruction_sets.h).
const TensorKernels* tensor_kernels(int vector_bits);

}  // namespace convtune::cpu
