// Random problems that Winograd's convolution takes, and tensors that it runs on.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/random_bits.h"
#include "contract/backend.h"
#include "convtune/problem.h"
#include "cpu/reference/oracle.h"

namespace convtune {

// An executable with tensors of numbers from -1 to 1 in steps of a thousandth.
struct WinogradHost {
  WinogradHost(const ConvProblem& of, std::unique_ptr<Executable> runs)
      : problem(of),
        executable(std::move(runs)),
        x(fill(of.input_elements(), 1)),
        w(fill(of.weight_elements(), 2)),
        bias(fill(of.k, 3)),
        y(static_cast<std::size_t>(of.output_elements())),
        packed(executable->packed_bytes() / sizeof(float)) {}

  static std::vector<float> fill(std::int64_t count, std::uint64_t stream) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(random_bits(stream, i) % 2001) / 1000.0F - 1.0F;
    return values;
  }
  const std::vector<float>& run() {
    executable->pack(w.data(), problem.bias ? bias.data() : nullptr, packed.data(), nullptr);
    executable->run({.x = x.data(), .y = y.data()}, packed.data(), nullptr);
    return y;
  }
  double exact(std::int64_t at) const {
    return cpu::oracle(problem, {x.data(), w.data(), problem.bias ? bias.data() : nullptr}, at).value;
  }

  ConvProblem problem;
  std::unique_ptr<Executable> executable;
  std::vector<float> x, w, bias, y, packed;
};

// Memory between two pages that nobody may read, of whole pages.
class GuardedFloats {
 public:
  // Tells whether they are whole pages of this machine's, which have 4 KiB or more.
  static bool fits(const std::vector<float>& values) {
    return values.size() * sizeof(float) % static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) == 0;
  }
  explicit GuardedFloats(const std::vector<float>& values)
      : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))), bytes_(values.size() * sizeof(float)) {
    EXPECT_TRUE(fits(values));
    memory_ = static_cast<char*>(
        mmap(nullptr, bytes_ + 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(memory_, page_, PROT_NONE), 0);
    EXPECT_EQ(mprotect(memory_ + page_ + bytes_, page_, PROT_NONE), 0);
    std::memcpy(memory_ + page_, values.data(), bytes_);
  }
  ~GuardedFloats() { munmap(memory_, bytes_ + 2 * page_); }
  GuardedFloats(const GuardedFloats&) = delete;
  GuardedFloats& operator=(const GuardedFloats&) = delete;
  const float* data() const { return reinterpret_cast<const float*>(memory_ + page_); }

 private:
  std::size_t page_, bytes_;
  char* memory_ = nullptr;
};

// Groups, odd extents, padding on one side only, images smaller than a tile.
inline ConvProblem random_winograd_problem(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t drawn = 0;
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>((random_bits(seed + index * 977, drawn++) >> 32) %
                                           static_cast<std::uint64_t>(high - low + 1));
  };
  ConvProblem problem;
  problem.r = problem.s = 3;
  problem.n = between(1, 3);
  problem.groups = between(0, 3) == 0 ? between(2, 3) : 1;
  problem.c = problem.groups * (between(0, 3) == 0 ? between(40, 200) : between(16, 40));
  problem.k = problem.groups * between(16, 50);
  problem.h = between(1, 20), problem.w = between(1, 30);
  problem.pad_top = between(1, 3), problem.pad_left = between(1, 3);
  problem.pad_bottom = between(1, 3), problem.pad_right = between(1, 3);
  if (problem.h > 2 && between(0, 2) == 0) problem.pad_top = problem.pad_bottom = 0;
  if (problem.w > 2 && between(0, 2) == 0) problem.pad_left = 0;
  problem.layout = between(0, 2) == 0 ? Layout::nhwc : Layout::nchw;
  problem.bias = between(0, 3) != 0;
  const std::int64_t activation = between(0, 3);
  if (activation == 0) problem.activation = Activation::relu;
  if (activation == 1) problem.activation = Activation::clip, problem.alpha = -2, problem.beta = 3;
  problem.precision = between(0, 1) == 0 ? Precision::fp32 : Precision::tf32;
  return problem;
}

// The problem as `tile=4` takes it: channels last, a precision that allows its errors, no output of padding
// alone.
inline ConvProblem taken_by_tile_four(ConvProblem problem) {
  problem.layout = Layout::nhwc, problem.precision = Precision::tf32;
  for (std::int64_t* const pad :
       {&problem.pad_top, &problem.pad_left, &problem.pad_bottom, &problem.pad_right})
    *pad = std::min<std::int64_t>(*pad, 2);
  return problem;
}

// As above, for NCHW tensors with dilations.
inline ConvProblem random_dilated_problem(std::uint64_t seed, std::uint64_t index) {
  ConvProblem problem = random_winograd_problem(seed, index);
  problem.layout = Layout::nchw;
  problem.dilation_h = 1 + static_cast<std::int64_t>(random_bits(seed, 2 * index) % 3);
  problem.dilation_w = 1 + static_cast<std::int64_t>(random_bits(seed, 2 * index + 1) % 4);
  problem.h = std::max(problem.h, 2 * problem.dilation_h + 1);
  problem.w = std::max(problem.w, 2 * problem.dilation_w + 1);
  return problem;
}

// Filters that are cut into parts, of any extents and strides: most of them save too little to be taken.
inline ConvProblem random_decomposed_problem(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t drawn = 0;
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>((random_bits(seed + index * 977, drawn++) >> 32) %
                                           static_cast<std::uint64_t>(high - low + 1));
  };
  ConvProblem problem;
  problem.n = between(1, 3);
  problem.groups = between(0, 3) == 0 ? 2 : 1;
  problem.c = problem.groups * between(1, 12);
  problem.k = problem.groups * between(32, 50);
  problem.r = between(2, 12), problem.s = between(2, 12);
  problem.stride_h = between(1, 5), problem.stride_w = between(1, 5);
  if (between(0, 3) == 0) {  // it takes many channels
    problem.c = problem.groups * between(48, 80);
    problem.r = problem.s = 3, problem.stride_h = problem.stride_w = 2;
  }
  problem.h = between(1, 40), problem.w = between(1, 70);
  problem.pad_top = between(0, problem.r), problem.pad_left = between(0, problem.s);
  problem.pad_bottom = between(0, problem.r), problem.pad_right = between(0, problem.s);
  problem.h = std::max(problem.h, problem.r), problem.w = std::max(problem.w, problem.s);
  problem.bias = between(0, 3) != 0;
  const std::int64_t activation = between(0, 3);
  if (activation == 0) problem.activation = Activation::relu;
  if (activation == 1) problem.activation = Activation::clip, problem.alpha = -2, problem.beta = 3;
  problem.precision = between(0, 1) == 0 ? Precision::fp32 : Precision::tf32;
  if (between(0, 3) == 0) problem.h = std::min<std::int64_t>(problem.h, 16), problem.w += 100;  // long rows
  problem.h = std::max(problem.h, problem.r);
  return problem;
}

}  // namespace convtune
