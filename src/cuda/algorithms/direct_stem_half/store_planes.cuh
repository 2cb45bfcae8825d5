// How direct_stem_half.cuh stores sums where channels come first. Four warps gather the 64 outputs of their
// strip in shared memory, [filter][output], since as many beside each other in a plane of y are whole lines
// of memory; from there they go in pieces of 16 bytes, or in words where a plane is no multiple of eight.
#pragma once

#include "cuda/algorithms/direct_stem_half/output.cuh"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/ptx/sm90.cuh"
#endif

namespace convtune::direct_stem_half {

template <DirectStemHalf config>
struct PlanesStore {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kPlane = a.p * a.q, kVolume = a.z * kPlane;  // kVolume: from filter to filter
  static constexpr int kPitch = 2 * config.staging_pitch(), kFilters = config.filters;
  static constexpr int kBlocks = (kFilters + 15) / 16;  // blocks of 16 filters
  const void* residual;
  void* y;
  unsigned biases, staging;
  int first_filter;
  int thread = static_cast<int>(threadIdx.x) % 128;
  long long first;  // element of y: of the strip's first output and the first filter
  int count;        // outputs of the strip, of all those behind the first

  __device__ PlanesStore(const void* __restrict__ residual, void* __restrict__ y, unsigned biases,
                         unsigned staging, const Tile<config>& tile, int first_output, int first_filter)
      : residual(residual), y(y), biases(biases), staging(staging), first_filter(first_filter) {
    const Output<config> output(tile, first_output);
    first = output.offset(tile, first_filter);
    count = lesser(config.strip_outputs(), lesser(config.outputs() - first_output, kPlane - output.at));
    // Opaque, or addresses that follow from it would be kept in registers from strip to strip.
    asm volatile("" : "+r"(thread));
  }

  __device__ static void sync() { ptx::bar_sync(1 + threadIdx.x / 128, 128); }
  __device__ bool has(int filter) const { return a.k % kFilters == 0 || first_filter + filter < a.k; }

  // f(address in the staging, element of y, whether it exists) for this thread's pieces of eight outputs.
  template <class F>
  __device__ __forceinline__ void for_pieces(const F& f) const {
    constexpr int kOfFilter = config.strip_outputs() / 8;
    for_constants<0, (kFilters * kOfFilter + 127) / 128>([&](auto step) {
      const int i = step.value * 128 + thread, filter = i / kOfFilter, output = i % kOfFilter * 8;
      if (kFilters * kOfFilter % 128 == 0 || filter < kFilters)
        f(step, staging + filter * kPitch + 2 * output, first + 1LL * filter * kVolume + output,
          output < count && has(filter));
    });
  }

  // The residual on its way to where its outputs will be staged, while others multiply.
  __device__ __forceinline__ void load_residual() const {
    if constexpr (a.residual && kPieces<config>) {
      for_pieces([&](auto, unsigned to, long long element, bool exists) {
        const auto* const from = static_cast<const unsigned short*>(residual);
        ptx::cp_async_16(to, from + (exists ? element : 0), exists ? 16 : 0);
      });
      ptx::cp_async_commit_group();
    }
  }

  // This warp's sums become outputs, 16 by 16 filters at a time.
  __device__ __forceinline__ void finish_sums(const float (&sums)[kFilters / 2]) const {
    const int lane = thread % 32, first_output = thread / 32 * 16;
    const unsigned matrices =
        staging + (lane / 16 * 8 + lane % 8) * kPitch + 2 * (first_output + lane / 8 % 2 * 8);
    for_constants<0, kBlocks>([&](auto block) {
      constexpr int kFirst = 16 * block.value;
      unsigned words[4] = {};  // two filters of an output each: outputs 0, 8, 0, 8; filters 0, 0, 8, 8 on
      const auto each = [&](const auto& f) {
        for_constants<0, 4>([&](auto i) {
          constexpr int kFilter = kFirst + i.value / 2 * 8;
          if constexpr (kFilter < kFilters)
            f(words[i.value], kFilter + lane % 4 * 2, first_output + i.value % 2 * 8 + lane / 4,
              sums + kFilter / 2 + i.value % 2 * 2);
        });
      };
      if constexpr (a.residual && kPieces<config>)
        ptx::ldmatrix_x4_trans(words, matrices + kFirst * kPitch);
      else if constexpr (a.residual)
        each([&](unsigned& word, int filter, int output, const float*) {
          const auto* const from =
              static_cast<const unsigned short*>(residual) + first + 1LL * filter * kVolume + output;
          if (output < count && has(filter)) word = from[0];
          if (output < count && has(filter + 1)) word |= static_cast<unsigned>(from[kVolume]) << 16;
        });
      each([&](unsigned& word, int filter, int, const float* two) {
        float bias[2] = {};
        if constexpr (kBegin<config> == SumsBegin::at_zero)
          ptx::ld_shared_v2(bias[0], bias[1], biases + 4 * filter);
        word = finish_halves<a, kBegin<config>>(two[0], bias[0], two[1], bias[1], word);
      });
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
      ptx::stmatrix_x4_trans(matrices + kFirst * kPitch, words);
#else
      each([&](unsigned word, int filter, int output, const float*) {
        ptx::st_shared_u16(staging + filter * kPitch + 2 * output, word);
        ptx::st_shared_u16(staging + (filter + 1) * kPitch + 2 * output, word >> 16);
      });
#endif
    });
  }

  __device__ __forceinline__ void store_pieces() const {
    constexpr int kSteps = (kFilters * config.strip_outputs() / 8 + 127) / 128;
    unsigned pieces[kSteps][4];
    for_pieces(
        [&](auto step, unsigned from, long long, bool) { ptx::ld_shared_v4(pieces[step.value], from); });
    for_pieces([&](auto step, unsigned, long long element, bool exists) {
      ptx::st_global_v4_if(static_cast<unsigned short*>(y) + element, pieces[step.value], exists);
    });
  }

  // Each warp every fourth filter. A filter's outputs may begin at an odd half of a word of y: a lane stores
  // the word that is so far from the first, of halves of two words of the staging; the first and the last
  // half that share a word with others go alone, those of all filters at once.
  __device__ __forceinline__ void store_words() const {
    const int lane = thread % 32, warp = thread / 32;
    auto* const to = static_cast<unsigned short*>(y) + first;
    const auto odd = [&](int filter) {
      return static_cast<int>(reinterpret_cast<unsigned long long>(to) / 2 + filter * kVolume) & 1;
    };
    constexpr int kOfWarp = kFilters / 4, kAtOnce = kOfWarp % 4 == 0 ? 4 : 2;
#pragma unroll 1
    for (int begin = warp; begin < kFilters; begin += 4 * kAtOnce) {
      unsigned before[kAtOnce], words[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const unsigned from = staging + (begin + 4 * i) * kPitch;
        before[i] = ptx::ld_shared(from + 4 * greater(lane - 1, 0));
        words[i] = ptx::ld_shared(from + 4 * lane);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int filter = begin + 4 * i, output = 2 * lane - odd(filter);
        const unsigned word = odd(filter) ? __funnelshift_l(before[i], words[i], 16) : words[i];
        if (output >= 0 && output + 1 < count && has(filter))
          *reinterpret_cast<unsigned*>(to + 1LL * filter * kVolume + output) = word;
      }
    }
#pragma unroll
    for (int i = lane; i < 2 * kOfWarp; i += 32) {
      const int filter = warp + i / 2 * 4, output = i % 2 == 0 ? 0 : count - 1;
      if (count > 0 && (odd(filter) + (i % 2 == 0 ? 0 : count)) % 2 != 0 && has(filter))
        to[1LL * filter * kVolume + output] =
            static_cast<unsigned short>(ptx::ld_shared_u16(staging + filter * kPitch + 2 * output));
    }
  }

  __device__ __forceinline__ void store(const float (&sums)[kFilters / 2]) const {
    if constexpr (a.residual && kPieces<config>) {
      ptx::cp_async_wait_group<0>();
      sync();
    }
    finish_sums(sums);
    sync();
    if constexpr (kPieces<config>)
      store_pieces();
    else
      store_words();
    sync();  // nobody writes what another still reads
  }
};

}  // namespace convtune::direct_stem_half
