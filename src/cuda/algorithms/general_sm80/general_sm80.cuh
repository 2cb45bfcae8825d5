// Every convolution, on CUDA cores, in exact fp32: any element types, layout, dimensions, direction and
// epilogue, told at the launch. It is there so that no problem is without an answer, and as plain as that
// allows. A thread has a few results and goes through all of their products, numbers come through L1, and
// what lies beside each other is read by neighbouring threads (config.h says which reads what).
//
// Padding is never multiplied, and so numbers that are not finite spread as far as the sums reach.
#include "cuda/algorithms/general_sm80/config.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::general_sm80 {

template <ElementType kType>
struct Numbers {
  const void* __restrict__ tensor;
  __device__ float operator()(long long offset) const { return load_element<kType>(tensor, offset); }
};

template <GeneralSm80 config>
__device__ __forceinline__ float finished(const ConvNumbers& a, float sum, float bias, float residual) {
  constexpr ElementType kType = config.out_type;
  float value = config.eager ? rounded<kType>(rounded<kType>(sum) + bias) : sum + bias;
  if constexpr (config.residual) value = config.eager ? rounded<kType>(value + residual) : value + residual;
  if constexpr (config.eager) return activate_eagerly<config.activation>(value, a.alpha, a.beta);
  return activate<config.activation>(value, a.alpha, a.beta);
}

template <GeneralSm80 config>
__device__ void compute(const ConvNumbers& a, const void* __restrict__ in, const float* __restrict__ packed,
                        void* __restrict__ out, const void* __restrict__ residual,
                        const void* __restrict__ cache) {
  using Index = typename IndexThat<!config.wide, int>::Fits;
  const Index all = static_cast<Index>(a.n * config.channel_threads(a) * config.position_threads(a));
  const Index step = static_cast<Index>(gridDim.x) * config.kThreads;
  const Packed at = config.packed(a);
#pragma unroll 1
  for (Index item = static_cast<Index>(blockIdx.x) * config.kThreads + threadIdx.x; item < all;
       item += step) {
    GeneralResults<config, Index> results(a, item);
    results.add(a, Numbers<config.in_type>{in}, Numbers<ElementType::f32>{packed},
                Numbers<config.in_type>{cache});
#pragma unroll
    for (int filter = 0; filter < config.filters; ++filter) {
      if (filter >= results.filters(a)) continue;
      const float bias = packed[at.bias_at() + results.channel(a, filter)];
#pragma unroll
      for (int pixel = 0; pixel < config.pixels; ++pixel) {
        if (!results.exists[pixel]) continue;
        const Index to = results.offset(a, filter, pixel);
        const float added = config.residual ? load_element<config.out_type>(residual, to) : 0;
        store_element<config.out_type>(out, to,
                                       finished<config>(a, results.sums[filter][pixel], bias, added));
      }
    }
  }
}

template <GeneralSm80 config>
__device__ void compute_gradients(const ConvNumbers& a, const void* __restrict__ x,
                                  const void* __restrict__ dy, void* __restrict__ dw,
                                  void* __restrict__ dbias) {
  using Index = typename IndexThat<!config.wide, int>::Fits;
  extern __shared__ float sums[];
  const int thread = static_cast<int>(threadIdx.x);
  const auto all = static_cast<Index>(config.blocks(a, dbias != nullptr));
#pragma unroll 1
  for (auto block = static_cast<Index>(blockIdx.x); block < all; block += static_cast<Index>(gridDim.x)) {
    const GeneralGradient<config, Index> gradient(a, block, thread);
    sums[thread] = gradient.sum(a, thread, Numbers<config.in_type>{x}, Numbers<config.out_type>{dy});
    // In halves, always in the same order.
    for (int half = config.kThreads / 2; half >= config.pairs_abreast(); half /= 2) {
      __syncthreads();
      if (thread < half) sums[thread] += sums[thread + half];
    }
    if (thread < config.pairs_abreast() && gradient.exists) {
      if (gradient.of_bias)
        store_element<config.bias_type>(dbias, gradient.offset(a), sums[thread]);
      else
        store_element<config.w_type>(dw, gradient.offset(a), sums[thread]);
    }
    __syncthreads();
  }
}

// in: x, or dy in backward data. out: y, dx or dw. more: the residual, or dy in backward weights. other: the
// cache's frames, or dbias in backward weights.
template <GeneralSm80 config>
__global__ void __launch_bounds__(config.kThreads, 2)
    general_sm80(const void* __restrict__ in, const float* __restrict__ packed, void* __restrict__ out,
                 const void* __restrict__ more, void* __restrict__ other, const ConvNumbers a) {
  ptx::wait_for_earlier_grids(packed);
  if constexpr (config.direction == ConvDirection::backward_weights)
    compute_gradients<config>(a, in, more, out, other);
  else
    compute<config>(a, in, packed, out, more, other);
}

// The packed weights.
template <GeneralSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_general_sm80(const void* __restrict__ w, const void* __restrict__ bias,
                      unsigned* __restrict__ packed, const ConvNumbers a) {
  pack_words<config.w_type, config.bias_type>(config.packed(a), w, bias, packed, [&](long long i) {
    return __float_as_uint(load_element<config.w_type>(w, config.source_of(a, i)));
  });
}

}  // namespace convtune::general_sm80
