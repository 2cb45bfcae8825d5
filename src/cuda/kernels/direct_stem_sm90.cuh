// Convolution for few input channels on compute capability 9.0: wgmma straight from raw input rows.
//
// A chunk is 4 neighbouring columns of a row, 16 bytes. wgmma reads an operand in blocks of 8 rows of 16
// bytes, 128 contiguous bytes where nothing is swizzled; so 8 chunks that follow each other ARE such a block:
// the operand's rows are pixels, 4 columns apart, and its k are the 4 columns. The next 4 filter columns are
// the same chunks, one further on. (Below: stride 4, an 11-column filter.) The im2col matrix is never made.
//
//   columns   | 0 1 2 3 | 4 5 6 7 | 8 9 .. | ..
//   chunks    |    0    |    1    |   2    | 3 ..
//   filter columns 0-3:  pixels 0 1 2 .. are chunks 0 1 2 ..
//   filter columns 4-7:  pixels 0 1 2 .. are chunks   1 2 3 ..      the descriptor's start, plus 16 bytes
//   filter columns 8-11: pixels 0 1 2 .. are chunks     2 3 4 ..    column 11 meets a weight of zero
//
// For other strides the row is kept once a class of pixels, shifted, and split into planes of chunks
// (direct_stem_sm90.h). A block stays on its multiprocessor with its filters and walks down bands of output
// rows. One warpgroup or more load input rows, round them to TF32 and fill a ring of units; the others take
// tiles of output in turns: wait for units, multiply, release the row, store.
//
// A unit in which a number is not finite is flagged: zero weights and rounding would spread it, so the rows
// that use it are computed again from the tensors as they came, in fp32 and with no padding.
#include "direct_stem_sm90_load.cuh"

namespace convtune {
namespace stem {

// One row of one image, as it is stored; `first_filter` is the block's.
struct OutputRow {
  int image, row, first_filter;
};
template <DirectStemSm90 config>
__device__ long long offset_of(const OutputRow& at, int filter) {
  return ((static_cast<long long>(at.image) * config.k + at.first_filter + filter) * config.p + at.row) *
         config.q;
}
template <DirectStemSm90 config>
__device__ bool exists(const OutputRow& at, int filter) {
  return config.k % config.filters == 0 || at.first_filter + filter < config.k;
}
template <DirectStemSm90 config>
__device__ float finish(float sum, float bias) {
  const float value = sum + bias;
  return config.relu && value < 0 ? 0.0f : value;  // NaN stays
}

template <DirectStemSm90 config>
__device__ __forceinline__ void multiply(float (&sums)[config.classes()][config.filters / 2],
                                         const Smem<config>& smem, int first_unit, int tile) {
  const unsigned long long weights = ptx::wgmma_descriptor(smem.weights / 16, config.filters, 8);
  ptx::wgmma_fence();
#pragma unroll
  for (int copy = 0; copy < config.classes(); ++copy) {
    unsigned long long window[config.halo() + 1];
#pragma unroll
    for (int unit = 0; unit <= config.halo(); ++unit) {
      const unsigned chunk =
          (first_unit + unit) % config.units * static_cast<unsigned>(config.unit_chunks()) +
          tile * DirectStemSm90::kTile + copy * config.row_chunks();
      // Every thread has the same: so the compiler learns it, and keeps it in a uniform register.
      window[unit] = ptx::wgmma_descriptor(__shfl_sync(0xffffffff, smem.units / 16 + chunk, 0), 0, 8);
    }
    for_constants<0, config.k_steps()>([&](auto step) {
      constexpr DirectStemSm90::Group first = config.group(2 * step.value);
      constexpr int begin = config.group_offset(first);
      constexpr int next = config.group_offset(config.group(2 * step.value + 1));
      ptx::WgmmaTf32<config.filters>::multiply(
          sums[copy], window[first.unit] + ptx::wgmma_descriptor(begin, next - begin, 0),
          weights + static_cast<unsigned long long>(step.value) * (2 * config.filters), step.value > 0);
    });
  }
  ptx::wgmma_commit_and_wait();
}

// One class of pixels: a thread's sums lie 8 filters apart, so they go through shared memory, some filters at
// a time, and rows are written in one piece.
template <DirectStemSm90 config>
__device__ __forceinline__ void store_staged(const float (&sums)[config.filters / 2],
                                             const Smem<config>& smem, const float* __restrict__ bias,
                                             float* __restrict__ y, const OutputRow& at, int tile,
                                             int consumer, int thread) {
  constexpr int kChannels = config.staged_channels(), kPitch = DirectStemSm90::kStagingPitch;
  const int lane = thread % 32, warp = thread / 32;
  const unsigned staging = smem.staging + consumer * kChannels * kPitch * 4;
  const unsigned mine = staging + (lane % 4 * 2 * kPitch + 16 * warp + lane / 4) * 4;
#pragma unroll
  for (int first = 0; first < config.filters; first += kChannels) {
    ptx::bar_sync(consumer + 1, 128);  // the filters before are read
#pragma unroll
    for (int i = 0; i < kChannels / 2; ++i)
      store_shared(mine + ((i / 4 * 8 + i % 2) * kPitch + i % 4 / 2 * 8) * 4,
                   __float_as_uint(sums[first / 2 + i]));
    ptx::bar_sync(consumer + 1, 128);
    const int channel = warp * (kChannels / 4);
#pragma unroll
    for (int i = 0; i < kChannels / 4; ++i) {
      const int filter = first + channel + i;
      if (!exists<config>(at, filter)) continue;
      const float addend = __ldg(bias + at.first_filter + filter);
      float* row = y + offset_of<config>(at, filter) + tile * DirectStemSm90::kTile;
#pragma unroll
      for (int position = lane; position < DirectStemSm90::kTile; position += 32) {
        const unsigned sum = load_shared(staging + ((channel + i) * kPitch + position) * 4);
        if (tile * DirectStemSm90::kTile + position < config.q)
          row[position] = finish<config>(__uint_as_float(sum), addend);
      }
    }
  }
}

// Two or four classes: a thread has that many neighbouring pixels.
template <DirectStemSm90 config>
__device__ __forceinline__ void store_direct(const float (&sums)[config.classes()][config.filters / 2],
                                             const float* __restrict__ bias, float* __restrict__ y,
                                             const OutputRow& at, int tile, int thread) {
  constexpr int kClasses = config.classes();
  const int lane = thread % 32;
  const bool aligned =
      config.q % kClasses == 0 && reinterpret_cast<unsigned long long>(y) % (4 * kClasses) == 0;
#pragma unroll
  for (int i = 0; i < config.filters / 2; ++i) {
    const int filter = i / 4 * 8 + lane % 4 * 2 + i % 2;
    const int pixel = (tile * DirectStemSm90::kTile + thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8) * kClasses;
    if (!exists<config>(at, filter) || pixel >= config.q) continue;
    const float addend = __ldg(bias + at.first_filter + filter);
    float* to = y + offset_of<config>(at, filter) + pixel;
    float values[kClasses];
#pragma unroll
    for (int copy = 0; copy < kClasses; ++copy) values[copy] = finish<config>(sums[copy][i], addend);
    if (aligned) {
      if constexpr (kClasses == 4)
        *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
      else
        *reinterpret_cast<float2*>(to) = make_float2(values[0], values[1]);
    } else {
#pragma unroll
      for (int copy = 0; copy < kClasses; ++copy)
        if (pixel + copy < config.q) to[copy] = values[copy];
    }
  }
}

// The tile again, slowly: for rows that meet a number that is not finite.
template <DirectStemSm90 config>
__device__ __forceinline__ void store_exact(const float* __restrict__ x, const float* __restrict__ packed,
                                            float* __restrict__ y, const OutputRow& at, int tile,
                                            int thread) {
  constexpr int kPixels = DirectStemSm90::kTile * config.classes();
#pragma unroll 1
  for (int i = thread; i < kPixels * config.filters; i += 128) {
    const int filter = i / kPixels, pixel = tile * kPixels + i % kPixels, k = at.first_filter + filter;
    if (!exists<config>(at, filter) || pixel >= config.q) continue;
    float sum = 0;
#pragma unroll 1
    for (int tap = 0; tap < config.c * config.r * config.s; ++tap) {
      const int channel = tap / (config.r * config.s);
      const int row = at.row * config.stride_h + tap / config.s % config.r - config.pad_top;
      const int column = pixel * config.stride_w + tap % config.s - config.pad_left;
      if (row < 0 || row >= config.h || column < 0 || column >= config.w) continue;
      const long long image_row = (static_cast<long long>(at.image) * config.c + channel) * config.h + row;
      sum = fmaf(
          x[image_row * config.w + column],
          packed[config.exact_weights() + static_cast<long long>(k) * (config.c * config.r * config.s) + tap],
          sum);
    }
    y[offset_of<config>(at, filter) + pixel] = finish<config>(sum, packed[config.bias_at() + k]);
  }
}

template <DirectStemSm90 config>
__device__ void consume(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                        const Smem<config>& smem, int consumer, int thread) {
  const Walk<config> walk;
  const float* bias = packed + config.bias_at();
  const bool weights_finite = packed[config.flag_at()] == 0;
  int units_seen = 0;
  int next = consumer;  // my next tile, counted from the row's first
  for (int row = 0; row < walk.rows(); ++row) {
    const int first_unit = walk.first_unit(row);
    // Every consumer waits for every unit and releases every row, its own or not: so no unit is replaced
    // before all have seen it, and the barriers' odd and even phases cannot be mistaken.
    for (; units_seen <= first_unit + config.halo(); ++units_seen)
      ptx::mbarrier_wait(smem.full + 8 * (units_seen % config.units), units_seen / config.units & 1);
    const auto release = [&] {
      __syncwarp();
      if (thread % 32 == 0) ptx::mbarrier_arrive(smem.done + 8 * (row % config.units));
    };
    if (next >= config.tiles()) release();
    const int band = walk.band_id(row / config.band);
    const OutputRow at{band / Walk<config>::kBandsOfImage,
                       band % Walk<config>::kBandsOfImage * config.band + row % config.band,
                       static_cast<int>(blockIdx.y) * config.filters};
    for (; next < config.tiles(); next += config.consumers) {
      float sums[config.classes()][config.filters / 2];
      multiply<config>(sums, smem, first_unit, next);
      // Read by the thread that releases, which orders it before the next unit's flag.
      bool finite = weights_finite;
      if (thread % 32 == 0)
        for (int unit = first_unit; unit <= first_unit + config.halo(); ++unit)
          finite = finite &&
                   load_shared(smem.flags + 4 * (unit % config.units)) != static_cast<unsigned>(unit + 1);
      finite = __shfl_sync(0xffffffff, finite, 0);
      if (next + config.consumers >= config.tiles()) release();
      if (!finite)
        store_exact<config>(x, packed, y, at, next, thread);
      else if constexpr (config.classes() == 1)
        store_staged<config>(sums[0], smem, bias, y, at, next, consumer, thread);
      else
        store_direct<config>(sums, bias, y, at, next, thread);
    }
    next -= config.tiles();
  }
}

}  // namespace stem

template <DirectStemSm90 config>
__global__ void __launch_bounds__(config.threads(), 1)
    direct_stem_sm90(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y) {
  extern __shared__ __align__(128) unsigned char memory[];
  const stem::Smem<config> smem(ptx::shared_address(memory));
  const int thread = threadIdx.x;
  if (thread == 0) {
    for (int i = 0; i < config.units; ++i) {
      ptx::mbarrier_init(smem.full + 8 * i, config.loaders());
      ptx::mbarrier_init(smem.done + 8 * i, 4 * config.consumers);
      stem::store_shared(smem.flags + 4 * i, 0);
    }
    ptx::fence_mbarrier_init();
  }
  const auto* weights = reinterpret_cast<const float4*>(packed) + blockIdx.y * (config.weight_bytes() / 16);
  for (int i = thread; i < config.weight_bytes() / 16; i += config.threads())
    reinterpret_cast<float4*>(memory)[i] = weights[i];
  ptx::fence_proxy_async();
  __syncthreads();
  const int warpgroup = __shfl_sync(0xffffffff, thread / 128, 0);
  if (warpgroup >= config.consumers)
    stem::produce<config>(x, smem, (thread - 128u * config.consumers) % config.loaders());
  else
    stem::consume<config>(x, packed, y, smem, warpgroup, thread % 128);
}

// The packed weights. The flag must be 0 before.
template <DirectStemSm90 config>
__global__ void __launch_bounds__(256)
    pack_direct_stem_sm90(const float* __restrict__ w, const float* __restrict__ bias,
                          unsigned* __restrict__ packed) {
  constexpr int kTaps = config.c * config.r * config.s;
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= config.flag_at()) return;
  unsigned bits = 0;
  if (i >= config.bias_at()) {
    bits = bias ? __float_as_uint(bias[i - config.bias_at()]) : 0;
  } else if (i >= config.exact_weights()) {
    bits = __float_as_uint(w[i - config.exact_weights()]);
  } else {
    const long long filter_of_group = i / 4;
    const int filter = static_cast<int>(filter_of_group % config.filters);
    const int all_groups = static_cast<int>(filter_of_group / config.filters);
    const DirectStemSm90::Group group = config.group(all_groups % config.groups());
    const int k = all_groups / config.groups() * config.filters + filter;
    const int row = group.unit * config.stride_h + group.row, column = group.column_group * 4 + i % 4;
    if (group.real && k < config.k && column < config.s) {
      const long long tap = (static_cast<long long>(group.channel) * config.r + row) * config.s + column;
      bits = ptx::cvt_rna_tf32(w[static_cast<long long>(k) * kTaps + tap]);
      if (!stem::is_finite_tf32(bits)) packed[config.flag_at()] = 1;
    }
  }
  packed[i] = bits;
}

}  // namespace convtune
