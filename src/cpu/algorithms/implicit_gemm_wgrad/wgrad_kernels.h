// The multiply-adds of the gradient of weights: compiled once for each instruction set, chosen at run time
// through this table of plain functions.
#pragma once

#include <array>
#include <cstdint>

namespace convtune::cpu {

// Pixels of an output row that one tap multiplies: offsets of the first of them in either panel.
struct WgradRun {
  std::int64_t vector, word, count;
};

// sums[i][l] += sum over runs and their pixels j of words[word + j * word_step + i] * vectors[vector + j *
// vector_step + l], added up from 0 first.
//   i in [0, rows of the kernel), l in [0, vectors of the kernel * lanes)
// Of `each` there is one row, and l is the index into both.
struct WgradArgs {
  const float *vectors, *words;
  const WgradRun* runs;
  std::int64_t run_count, vector_step, word_step;
  float* sums;  // aligned to a vector; dense
};
using WgradKernel = void (*)(const WgradArgs&);

constexpr int kMaxWgradVectors = 3, kMaxEachVectors = 4;

struct WgradKernels {
  int lanes;                                           // floats in a vector
  int rows;                                            // of `multiply`
  std::array<WgradKernel, kMaxWgradVectors> multiply;  // by vectors - 1
  std::array<WgradKernel, kMaxEachVectors> each;
};

// Null where this build has no code for that width (cpu/tile/instruction_sets.h).
const WgradKernels* wgrad_kernels(int vector_bits);

}  // namespace convtune::cpu
