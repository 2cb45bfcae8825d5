// One layer in steps, for docs/one-layer-seven-steps.md: a 3x3 convolution of VGG-16 (32 images of
// 112x112x128, 128 filters, stride 1, padding 1, bias, ReLU) in bf16, channels last, sums in fp32. Each
// kernel below has one idea more than the one before it; the seventh step is convtune's own kernel and is not
// here. Prints a table in Markdown.
//   nvcc -O3 -std=c++17 -arch=sm_90a bench/seven_steps.cu -o seven_steps && ./seven_steps
// Data are small integers, so that all sums are exact and every kernel must agree with the first in every
// bit.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

using bf16 = __nv_bfloat16;
constexpr int kImages = 32, kSide = 112, kChannels = 128, kFilters = 128, kTaps = 9;
constexpr int kPixels = kImages * kSide * kSide, kProducts = kTaps * kChannels;
constexpr double kFlops = 2.0 * kPixels * kFilters * kProducts;

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "seven_steps: %s\n", cudaGetErrorString(error));
  std::exit(1);
}

// A pixel of the output by its place, and the input that one tap of the filter meets there: null in the
// padding.
struct Pixel {
  int image, row, column;
  __device__ explicit Pixel(int index)
      : image(index / (kSide * kSide)), row(index / kSide % kSide), column(index % kSide) {}
  __device__ const bf16* input(const bf16* x, int tap) const {
    const int y = row + tap / 3 - 1, z = column + tap % 3 - 1;
    const bool inside = y >= 0 && y < kSide && z >= 0 && z < kSide;
    return inside ? x + (static_cast<long>(image * kSide + y) * kSide + z) * kChannels : nullptr;
  }
};

__device__ bf16 finished(float sum, float bias) {
  return __float2bfloat16(fmaxf(sum + bias, 0.0f));
}

// 1 and 2: a thread computes one output. Neighbouring threads have neighbouring pixels in step 1: each load
// of a warp touches 32 lines. In step 2 they have neighbouring filters, whose weights lie side by side in
// `packed`.
template <bool kFiltersFirst>
__global__ void one_output(const bf16* x, const bf16* w, const bf16* packed, const float* bias, bf16* y) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  const int pixel = kFiltersFirst ? index / kFilters : index % kPixels;
  const int filter = kFiltersFirst ? index % kFilters : index / kPixels;
  float sum = 0;
  for (int tap = 0; tap < kTaps; ++tap) {
    const bf16* input = Pixel(pixel).input(x, tap);
    if (input == nullptr) continue;
    for (int c = 0; c < kChannels; ++c) {
      const bf16 weight = kFiltersFirst ? packed[(tap * kChannels + c) * kFilters + filter]
                                        : w[(filter * kTaps + tap) * kChannels + c];
      sum += __bfloat162float(input[c]) * __bfloat162float(weight);
    }
  }
  y[static_cast<long>(pixel) * kFilters + filter] = finished(sum, bias[filter]);
}

// 3: a block computes 32 pixels of 32 filters; what it reads of 32 channels is in shared memory and read 32
// times there.
__global__ void shared_tile(const bf16* x, const bf16* packed, const float* bias, bf16* y) {
  __shared__ float inputs[32][33], weights[32][33];
  const int across = threadIdx.x % 32, down = threadIdx.x / 32;
  const int first_pixel = blockIdx.x * 32, filter = blockIdx.y * 32 + across;
  const Pixel loaded(first_pixel + down);
  float sum = 0;
  for (int step = 0; step < kProducts; step += 32) {
    const bf16* input = loaded.input(x, step / kChannels);
    inputs[down][across] = input != nullptr ? __bfloat162float(input[step % kChannels + across]) : 0.0f;
    weights[down][across] = __bfloat162float(packed[(step + down) * kFilters + filter]);
    __syncthreads();
    for (int c = 0; c < 32; ++c) sum += inputs[down][c] * weights[c][across];
    __syncthreads();
  }
  y[static_cast<long>(first_pixel + down) * kFilters + filter] = finished(sum, bias[filter]);
}

// 4: a block computes 128 pixels of all 128 filters, a thread 8 x 8 of them in registers: 16 numbers read
// from shared memory for 64 multiply-adds, where step 3 reads 2 for each.
__global__ void __launch_bounds__(256)
    register_tile(const bf16* x, const bf16* packed, const float* bias, bf16* y) {
  constexpr int kStep = 16;
  __shared__ float inputs[kStep][132], weights[kStep][132];
  const int thread = threadIdx.x, first_pixel = blockIdx.x * 128;
  const Pixel loaded(first_pixel + thread / 2);
  const int pixels = thread / 16 * 8, filters = thread % 16 * 8;
  float sums[8][8] = {};
  for (int step = 0; step < kProducts; step += kStep) {
    const bf16* input = loaded.input(x, step / kChannels);
    for (int i = 0; i < 8; ++i) {
      const int c = thread % 2 * 8 + i;
      inputs[c][thread / 2] = input != nullptr ? __bfloat162float(input[step % kChannels + c]) : 0.0f;
      weights[thread / 16][filters + i] =
          __bfloat162float(packed[(step + thread / 16) * kFilters + filters + i]);
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kStep; ++c) {
      float a[8], b[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) a[i] = inputs[c][pixels + i], b[i] = weights[c][filters + i];
#pragma unroll
      for (int i = 0; i < 64; ++i) sums[i / 8][i % 8] += a[i / 8] * b[i % 8];
    }
    __syncthreads();
  }
  for (int i = 0; i < 64; ++i) {
    const int filter = filters + i % 8;
    y[static_cast<long>(first_pixel + pixels + i / 8) * kFilters + filter] =
        finished(sums[i / 8][i % 8], bias[filter]);
  }
}

// 5 and 6: a block computes 128 pixels of 128 filters by 8 warps of 64 x 32, in products of 16 x 8 x 16 on
// the tensor cores. Rows of 32 channels lie 80 bytes apart in shared memory: eight of them begin in eight
// different banks.
constexpr int kStep = 32, kRow = 40, kTile = 128 * kRow;

__device__ void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ void store(const float (&sums)[4][4][4], int first_pixel, const float* bias, bf16* y) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 64; ++i) {
    const int down = i / 16, across = i / 4 % 4, part = i % 4;
    const int pixel = first_pixel + warp / 4 * 64 + down * 16 + lane / 4 + part / 2 * 8;
    const int filter = warp % 4 * 32 + across * 8 + lane % 4 * 2 + part % 2;
    y[static_cast<long>(pixel) * kFilters + filter] = finished(sums[down][across][part], bias[filter]);
  }
}

// 5: loads, then products, one after the other.
__global__ void __launch_bounds__(256)
    tensor_cores(const bf16* x, const bf16* w, const float* bias, bf16* y) {
  __shared__ __align__(16) bf16 inputs[kTile], weights[kTile];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, first_pixel = blockIdx.x * 128;
  const int row = thread / 4, part = thread % 4 * 8;
  const Pixel loaded[2] = {Pixel(first_pixel + row), Pixel(first_pixel + row + 64)};
  float sums[4][4][4] = {};
  for (int step = 0; step < kProducts; step += kStep) {
    for (int i = 0; i < 2; ++i) {
      const bf16* input = loaded[i].input(x, step / kChannels);
      const int place = (row + i * 64) * kRow + part;
      *reinterpret_cast<uint4*>(inputs + place) =
          input != nullptr ? *reinterpret_cast<const uint4*>(input + step % kChannels + part) : uint4{};
      *reinterpret_cast<uint4*>(weights + place) =
          *reinterpret_cast<const uint4*>(w + (row + i * 64) * kProducts + step + part);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kStep; k += 16) {
      const auto word = [&](const bf16* tile, int at_row, int column) {
        return *reinterpret_cast<const unsigned*>(tile + at_row * kRow + column);
      };
      const int line = lane / 4, column = k + lane % 4 * 2;
      unsigned a[4][4];
#pragma unroll
      for (int down = 0; down < 4; ++down) {
        const int top = warp / 4 * 64 + down * 16 + line;
        for (int i = 0; i < 4; ++i) a[down][i] = word(inputs, top + i % 2 * 8, column + i / 2 * 8);
      }
#pragma unroll
      for (int across = 0; across < 4; ++across) {
        const int filter = warp % 4 * 32 + across * 8 + line;
        const unsigned b0 = word(weights, filter, column), b1 = word(weights, filter, column + 8);
        for (int down = 0; down < 4; ++down) multiply(sums[down][across], a[down], b0, b1);
      }
    }
    __syncthreads();
  }
  store(sums, first_pixel, bias, y);
}

__device__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

__device__ void copy_ahead(bf16* to, const bf16* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(inside ? 16 : 0));
}

__device__ void load_matrices(unsigned (&to)[4], const bf16* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(from)));
}

// 6: copies of three steps are under way while a fourth is multiplied, past the registers; ldmatrix reads
// four 8 x 8 matrices with one instruction.
constexpr int kStages = 4;
__global__ void __launch_bounds__(256, 2) pipeline(const bf16* x, const bf16* w, const float* bias, bf16* y) {
  extern __shared__ __align__(16) bf16 ring[];
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32, first_pixel = blockIdx.x * 128;
  const int row = thread / 4, part = thread % 4 * 8;
  const Pixel loaded[2] = {Pixel(first_pixel + row), Pixel(first_pixel + row + 64)};
  const auto fetch = [&](int step) {
    if (step < kProducts) {
      bf16* stage = ring + step / kStep % kStages * 2 * kTile;
      for (int i = 0; i < 2; ++i) {
        const bf16* input = loaded[i].input(x, step / kChannels);
        const int place = (row + i * 64) * kRow + part;
        copy_ahead(stage + place, input != nullptr ? input + step % kChannels + part : x, input != nullptr);
        copy_ahead(stage + kTile + place, w + (row + i * 64) * kProducts + step + part, true);
      }
    }
    asm volatile("cp.async.commit_group;");
  };
  float sums[4][4][4] = {};
  for (int i = 0; i < kStages - 1; ++i) fetch(i * kStep);
  for (int step = 0; step < kProducts; step += kStep) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2));
    __syncthreads();
    fetch(step + (kStages - 1) * kStep);
    const bf16 *inputs = ring + step / kStep % kStages * 2 * kTile, *weights = inputs + kTile;
#pragma unroll
    for (int k = 0; k < kStep; k += 16) {
      unsigned a[4][4], b[2][4];
#pragma unroll
      for (int down = 0; down < 4; ++down) {
        load_matrices(a[down], inputs + (warp / 4 * 64 + down * 16 + lane % 16) * kRow + k + lane / 16 * 8);
      }
#pragma unroll
      for (int pair = 0; pair < 2; ++pair) {
        const int filter = warp % 4 * 32 + pair * 16 + lane / 16 * 8 + lane % 8;
        load_matrices(b[pair], weights + filter * kRow + k + lane / 8 % 2 * 8);
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int down = i / 4, across = i % 4;
        multiply(sums[down][across], a[down], b[across / 2][across % 2 * 2],
                 b[across / 2][across % 2 * 2 + 1]);
      }
    }
  }
  store(sums, first_pixel, bias, y);
}

int main() {
  std::vector<bf16> x(static_cast<std::size_t>(kPixels) * kChannels), w(kFilters * kProducts),
      packed(w.size());
  std::vector<float> bias(kFilters);
  unsigned state = 1;
  const auto small = [&state](int range) {  // integers of -range to range
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<int>(state >> 16) % (2 * range + 1) - range);
  };
  for (auto& value : x) value = __float2bfloat16(small(2));
  for (auto& value : bias) value = small(2);
  for (int i = 0; i < kFilters * kProducts; ++i) {
    w[i] = __float2bfloat16(small(1));
    packed[i % kProducts * kFilters + i / kProducts] = w[i];
  }
  const auto on_gpu = [](const auto& from) {
    void* to = nullptr;
    check(cudaMalloc(&to, from.size() * sizeof from[0]));
    check(cudaMemcpy(to, from.data(), from.size() * sizeof from[0], cudaMemcpyHostToDevice));
    return to;
  };
  const auto *dx = static_cast<bf16*>(on_gpu(x)), *dw = static_cast<bf16*>(on_gpu(w)),
             *dp = static_cast<bf16*>(on_gpu(packed));
  const auto* db = static_cast<float*>(on_gpu(bias));
  std::vector<bf16> y(static_cast<std::size_t>(kPixels) * kFilters), first;
  auto* dy = static_cast<bf16*>(on_gpu(y));
  void* flushed = nullptr;
  constexpr std::size_t kFlush = 256u << 20;
  check(cudaMalloc(&flushed, kFlush));
  constexpr int kRing = kStages * 2 * kTile * static_cast<int>(sizeof(bf16)), kOutputs = kPixels * kFilters;
  check(cudaFuncSetAttribute(pipeline, cudaFuncAttributeMaxDynamicSharedMemorySize, kRing));
  const std::pair<const char*, std::function<void()>> steps[] = {
      {"one thread an output, neighbours by pixels",
       [&] { one_output<false><<<kOutputs / 256, 256>>>(dx, dw, dp, db, dy); }},
      {"neighbours by filters: loads side by side",
       [&] { one_output<true><<<kOutputs / 256, 256>>>(dx, dw, dp, db, dy); }},
      {"tiles in shared memory", [&] { shared_tile<<<dim3(kPixels / 32, 4), 1024>>>(dx, dp, db, dy); }},
      {"8 x 8 sums a thread in registers", [&] { register_tile<<<kPixels / 128, 256>>>(dx, dp, db, dy); }},
      {"tensor cores (mma.sync)", [&] { tensor_cores<<<kPixels / 128, 256>>>(dx, dw, db, dy); }},
      {"copies ahead (cp.async), ldmatrix",
       [&] { pipeline<<<kPixels / 128, 256, kRing>>>(dx, dw, db, dy); }}};
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0));
  std::printf(
      "%s, medians of 9 runs behind a flushed L2\n\n| step | us | TFLOP/s | times the first "
      "|\n|---|---|---|---|\n",
      device.name);
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin)), check(cudaEventCreate(&end));
  float slowest = 0;
  for (int step = 0; step < 6; ++step) {
    check(cudaMemset(dy, 0xff, y.size() * sizeof y[0]));
    std::vector<float> times(9);
    for (float& ms : times) {
      check(cudaMemset(flushed, 0, kFlush));
      check(cudaEventRecord(begin));
      steps[step].second();
      check(cudaGetLastError());
      check(cudaEventRecord(end));
      check(cudaEventSynchronize(end));
      check(cudaEventElapsedTime(&ms, begin, end));
    }
    std::sort(times.begin(), times.end());
    if (step == 0) slowest = times[4];
    std::printf("| %d. %s | %.1f | %.1f | %.1f |\n", step + 1, steps[step].first, times[4] * 1e3,
                kFlops / times[4] * 1e-9, slowest / times[4]);
    check(cudaMemcpy(y.data(), dy, y.size() * sizeof y[0], cudaMemcpyDeviceToHost));
    if (step == 0) first = y;
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (__bfloat162float(y[i]) == __bfloat162float(first[i])) continue;
      std::fprintf(stderr, "seven_steps: step %d differs from step 1 at output %zu\n", step + 1, i);
      return 1;
    }
  }
  for (const std::size_t at :
       {std::size_t{0}, y.size() / 2 + 77, y.size() - 1}) {  // the first step beside the host
    const int pixel = static_cast<int>(at / kFilters), filter = static_cast<int>(at % kFilters);
    float sum = bias[filter];
    for (int i = 0; i < kProducts; ++i) {
      const int tap = i / kChannels, row = pixel / kSide % kSide + tap / 3 - 1,
                column = pixel % kSide + tap % 3 - 1;
      if (row < 0 || row >= kSide || column < 0 || column >= kSide) continue;
      const std::size_t place =
          (static_cast<std::size_t>(pixel / (kSide * kSide)) * kSide + row) * kSide + column;
      sum += __bfloat162float(x[place * kChannels + i % kChannels]) *
             __bfloat162float(w[filter * kProducts + i]);
    }
    if (__bfloat162float(__float2bfloat16(std::max(sum, 0.0f))) == __bfloat162float(first[at])) continue;
    std::fprintf(stderr, "seven_steps: output %zu is wrong\n", at);
    return 1;
  }
}
