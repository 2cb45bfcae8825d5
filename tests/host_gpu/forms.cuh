// Forms of instructions, a kernel each: it gives them random operands and leaves their results in `out`, all
// of them exact. forms.cpp launches these kernels, on a GPU to take the table and on its stand-in to compare.
#include "cuda/ptx/gather.cuh"
#include "cuda/ptx/several.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/wgmma_half.cuh"
#include "cuda/ptx/wgmma_half_shared.cuh"
#include "cuda/ptx/wgmma_tf32.cuh"
#include "cuda/ptx/wgmma_tf32_registers.cuh"
#include "cuda/ptx/wgmma_three.cuh"

namespace convtune::forms {

enum class Numbers { words, tf32, bf16, f16 };  // in words of 32 bits
constexpr unsigned kBytes = 64 << 10;           // of operands in shared memory

__device__ inline float small(unsigned bits) {  // integers, so that sums are exact in any order
  return static_cast<float>(static_cast<int>(bits % 9) - 4);
}
// TF32 with bits that products drop.
template <Numbers kNumbers>
__device__ inline unsigned number(unsigned bits) {
  if constexpr (kNumbers == Numbers::words) return bits;
  if constexpr (kNumbers == Numbers::tf32) return __float_as_uint(small(bits)) | (bits >> 16 & 0x1fff);
  if constexpr (kNumbers == Numbers::bf16) return ptx::cvt_rn_bf16x2(small(bits), small(bits >> 16));
  if constexpr (kNumbers == Numbers::f16) return ptx::cvt_rn_f16x2(small(bits), small(bits >> 16));
}
// One word in 32 is an infinity or NaN, in both halves of a word.
template <Numbers kNumbers>
__device__ inline unsigned special(unsigned bits) {
  constexpr bool kWord = kNumbers == Numbers::tf32;
  constexpr unsigned kInfinity = kWord ? 0x7f800000u : kNumbers == Numbers::f16 ? 0x7c007c00u : 0x7f807f80u;
  switch (bits % 96) {
    case 0:
      return kInfinity;
    case 1:
      return kInfinity | (kWord ? 0x80000000u : 0x80008000u);
    case 2:
      return kInfinity | (kWord ? 0x00400000u : 0x00400040u);
    default:
      return number<kNumbers>(bits / 96);
  }
}
__device__ inline unsigned bits_of(float value) {  // one NaN stands for all
  return value == value ? __float_as_uint(value) : 0x7fffffffu;
}
template <int kCount>
__device__ inline void keep(unsigned* out, const float (&values)[kCount]) {
  for (int i = 0; i < kCount; ++i) out[threadIdx.x * kCount + i] = bits_of(values[i]);
}

__device__ inline unsigned operands_begin() {
  extern __shared__ __align__(1024) unsigned char shared[];
  return (ptx::shared_address(shared) + 1023) / 1024 * 1024;
}
template <Numbers kNumbers>
__device__ inline unsigned filled(const unsigned* in) {
  const unsigned smem = operands_begin();
  for (unsigned i = threadIdx.x; i < kBytes / 4; i += blockDim.x)
    ptx::st_shared(smem + 4 * i, number<kNumbers>(in[i]));
  ptx::fence_proxy_async();
  __syncthreads();
  return smem;
}
__device__ inline void keep_shared(unsigned* out, unsigned smem, unsigned bytes) {
  __syncthreads();
  for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x) out[i] = ptx::ld_shared(smem + 4 * i);
}

// ---- A warp's products and matrices ----

template <Numbers kNumbers, int kDepth>
__global__ void warp_product(const unsigned* in, unsigned* out) {
  for (int round = 0; round < 2; ++round, in += 1024, out += 128) {
    const auto operand = [&](int i) {
      const unsigned bits = in[128 + 32 * i + threadIdx.x];
      return round == 0 ? number<kNumbers>(bits) : special<kNumbers>(bits);
    };
    float d[4];
    for (int i = 0; i < 4; ++i) d[i] = small(in[32 * i + threadIdx.x]);
    const unsigned a[4] = {operand(0), operand(1), operand(2), operand(3)}, b[2] = {operand(4), operand(5)};
    if constexpr (kNumbers == Numbers::tf32)
      ptx::mma_m16n8k8_tf32(d, a, b);
    else if constexpr (kNumbers == Numbers::bf16 && kDepth == 16)
      ptx::mma_m16n8k16_bf16(d, a, b);
    else if constexpr (kNumbers == Numbers::f16 && kDepth == 16)
      ptx::mma_m16n8k16_f16(d, a, b);
    else if constexpr (kNumbers == Numbers::bf16)
      ptx::mma_m16n8k8_bf16(d, a[0], a[1], b[0]);
    else
      ptx::mma_m16n8k8_f16(d, a[0], a[1], b[0]);
    keep(out, d);
  }
}

// Rows of matrices in shared memory, by 32 addresses from all over it.
__global__ void matrices(const unsigned* in, unsigned* out) {
  const unsigned smem = filled<Numbers::words>(in), lane = threadIdx.x;
  const unsigned row = smem + (lane * 37 + 5) % 64 * 16;
  unsigned values[12] = {};
  unsigned four[4];
  ptx::ldmatrix_x4(four, row);
  for (int i = 0; i < 4; ++i) values[i] = four[i];
  ptx::ldmatrix_x4_trans(four, row);
  for (int i = 0; i < 4; ++i) values[4 + i] = four[i];
  ptx::ldmatrix_x2(values[8], values[9], row);
  for (int i = 0; i < 12; ++i) out[12 * lane + i] = values[i];
  ptx::stmatrix_x4(smem + 2048 + (lane * 37 + 5) % 64 * 16, four);
  ptx::stmatrix_x4_trans(smem + 4096 + (lane * 37 + 5) % 64 * 16, four);
  __syncwarp();
  keep_shared(out + 384, smem + 2048, 4096);
}

// ---- A warpgroup's products: twice, and the second is added ----

template <int kColumns, class Multiply>
__device__ inline void products(unsigned* out, const Multiply& multiply) {
  float sums[kColumns / 2];
  for (float& sum : sums) sum = 0;
  ptx::wgmma_fence();
  multiply(sums, false);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::wgmma_fence();
  multiply(sums, true);
  ptx::wgmma_commit_and_wait();
  keep(out, sums);
}
__device__ inline unsigned long long tf32_a(unsigned smem, unsigned piece) {
  return ptx::wgmma_descriptor(smem / 16 + piece, 64, 8);
}
template <int kColumns>
__device__ inline unsigned long long tf32_b(unsigned smem, unsigned piece) {
  return ptx::wgmma_descriptor((smem + kBytes / 2) / 16 + piece, kColumns, 8);
}

template <int kColumns>
__global__ void tf32_product(const unsigned* in, unsigned* out) {
  const unsigned smem = filled<Numbers::tf32>(in);
  products<kColumns>(out, [&](float(&sums)[kColumns / 2], bool adds) {
    ptx::WgmmaTf32<kColumns>::multiply(sums, tf32_a(smem, 7 * adds), tf32_b<kColumns>(smem, 5 * adds), adds);
  });
}
template <int kColumns>
__global__ void tf32_three_products(const unsigned* in, unsigned* out) {
  const unsigned smem = filled<Numbers::tf32>(in);
  products<kColumns>(out, [&](float(&sums)[kColumns / 2], bool adds) {
    ptx::ThreeWgmmaTf32<kColumns>::template multiply<16, 3, 48, 9>(sums, tf32_a(smem, 7 * adds),
                                                                   tf32_b<kColumns>(smem, adds), adds);
  });
}
template <int kColumns>
__global__ void tf32_three_products_anywhere(const unsigned* in, unsigned* out) {
  const unsigned smem = filled<Numbers::tf32>(in);
  products<kColumns>(out, [&](float(&sums)[kColumns / 2], bool adds) {
    const unsigned long long a[3] = {tf32_a(smem, adds), tf32_a(smem, 11), tf32_a(smem, 200)};
    const unsigned long long b[3] = {tf32_b<kColumns>(smem, 3), tf32_b<kColumns>(smem, adds),
                                     tf32_b<kColumns>(smem, 90)};
    ptx::ThreeWgmmaTf32Anywhere<kColumns>::multiply(sums, a, b, adds);
  });
}
template <int kColumns>
__global__ void tf32_product_of_registers(const unsigned* in, unsigned* out) {
  const unsigned smem = filled<Numbers::tf32>(in);
  unsigned a[4];
  for (int i = 0; i < 4; ++i) a[i] = number<Numbers::tf32>(in[4 * threadIdx.x + i]);
  products<kColumns>(out, [&](float(&sums)[kColumns / 2], bool adds) {
    ptx::WgmmaTf32Registers<kColumns>::multiply(sums, a, tf32_b<kColumns>(smem, 5 * adds), adds);
  });
}
template <bool kBf16, int kColumns>
__global__ void half_product_of_registers(const unsigned* in, unsigned* out) {
  constexpr Numbers kNumbers = kBf16 ? Numbers::bf16 : Numbers::f16;
  const unsigned smem = filled<kNumbers>(in);
  unsigned a[4];
  for (int i = 0; i < 4; ++i) a[i] = number<kNumbers>(in[4 * threadIdx.x + i]);
  products<kColumns>(out, [&](float(&sums)[kColumns / 2], bool adds) {
    ptx::WgmmaHalfRegisters<kBf16, kColumns>::multiply(sums, a, tf32_b<kColumns>(smem, 5 * adds), adds);
  });
}
// Rows of kRowBytes with their pieces exchanged; the second product begins some rows and pieces further on.
template <bool kBf16, int kColumns, int kRowBytes>
__global__ void half_product(const unsigned* in, unsigned* out) {
  const unsigned smem = filled < kBf16 ? Numbers::bf16 : Numbers::f16 > (in);
  const unsigned long long a = ptx::wgmma_descriptor_exchanged<kRowBytes>(smem / 16),
                           b = ptx::wgmma_descriptor_exchanged<kRowBytes>((smem + 16384) / 16);
  using Product = ptx::WgmmaHalfShared<kBf16, kColumns>;
  products<kColumns>(out, [&](float(&sums)[kColumns / 2], bool adds) {
    Product::multiply(sums, a + 2 * adds, b + 2 * adds + 3 * adds * (kRowBytes / 16), adds);
    if constexpr (kRowBytes == 128) Product::template multiply_four<2>(sums, a, b + 8 * adds, true);
  });
}
// Operands b whose rows are 64 columns.
template <bool kBf16, int kColumns>
__global__ void half_product_of_columns(const unsigned* in, unsigned* out) {
  const unsigned smem = filled < kBf16 ? Numbers::bf16 : Numbers::f16 > (in);
  const unsigned long long a = ptx::wgmma_descriptor_exchanged<128>(smem / 16);
  const unsigned long long b =
      ((smem + 16384) / 16 & 0x3fff) | 8192ull / 16 << 16 | 1024ull / 16 << 32 | 1ull << 62;
  using Product = ptx::WgmmaHalfShared<kBf16, kColumns, true>;
  products<kColumns>(out, [&](float(&sums)[kColumns / 2], bool adds) {
    Product::multiply(sums, a + 2 * adds, b + 2048 / 16 * adds, adds);
    Product::template multiply_four<2048 / 16>(sums, a, b, true);
  });
}

// ---- Copies ----

struct Place {
  int at[5], on[2];  // per box or of pixels; how far behind a walk
  unsigned bytes;
};
enum class Load { rows, rows_once, box, box_once, pixels, group_pixels, bulk };

// Shared memory holds a pattern before.
template <Load kLoad>
__global__ void load(const __grid_constant__ ptx::TensorMap map, Place p, const unsigned* in, unsigned* out) {
  const unsigned smem = operands_begin(), barrier = smem + kBytes;
  for (unsigned i = threadIdx.x; i < kBytes / 4; i += blockDim.x) ptx::st_shared(smem + 4 * i, 0xabcdef01u);
  if (threadIdx.x == 0) ptx::mbarrier_init(barrier, 1);
  ptx::fence_mbarrier_init();
  ptx::fence_proxy_async();
  __syncthreads();
  const bool one = threadIdx.x == 0;
  const int(&at)[5] = p.at;
  ptx::mbarrier_arrive_expect_if(barrier, p.bytes, one);
  if constexpr (kLoad == Load::rows) ptx::load_rows_if(smem, &map, at[0], at[1], barrier, one);
  if constexpr (kLoad == Load::rows_once) ptx::load_rows_once_if(smem, &map, at[0], at[1], barrier, one);
  if constexpr (kLoad == Load::box)
    ptx::load_box_if(smem, &map, at[0], at[1], at[2], at[3], at[4], barrier, one);
  if constexpr (kLoad == Load::box_once)
    ptx::load_box_once_if(smem, &map, at[0], at[1], at[2], at[3], at[4], barrier, one);
  if constexpr (kLoad == Load::pixels)
    ptx::load_pixels_if(smem, &map, at[0], at[1], at[2], at[3], p.on[0], p.on[1], barrier, one);
  if constexpr (kLoad == Load::group_pixels)
    ptx::load_group_pixels_if(smem, &map, at[0], at[1], at[2], at[3], at[4], p.on[0], p.on[1], barrier, one);
  if constexpr (kLoad == Load::bulk) ptx::bulk_copy_to_shared_if(smem, in + at[0], p.bytes, barrier, one);
  ptx::mbarrier_wait(barrier, 0);
  keep_shared(out, smem, kBytes);
}

// `out` is the tensor of the map.
template <int kExtents>
__global__ void store(const __grid_constant__ ptx::TensorMap map, Place p, const unsigned* in,
                      unsigned* out) {
  const unsigned smem = filled<Numbers::words>(in);
  const int(&at)[5] = p.at;
  const bool one = threadIdx.x == 0;
  if constexpr (kExtents == 3) ptx::store_box_if(&map, at[0], at[1], at[2], smem, one);
  if constexpr (kExtents == 5) ptx::store_box_if(&map, at[0], at[1], at[2], at[3], at[4], smem, one);
  if constexpr (kExtents == 0)
    if (one) ptx::bulk_copy_to_global(out + at[0], smem, p.bytes);
  ptx::bulk_commit_group();
  ptx::bulk_wait();
}

__global__ void copies(const unsigned* in, unsigned* out) {
  const unsigned smem = filled<Numbers::words>(in), i = threadIdx.x;
  const unsigned* const from = in + 4 * i + 8192;
  const unsigned some = in[i] % 17;
  __syncthreads();
  ptx::cp_async_4<0>(smem + 16 * i, from, some < 4 ? some : 4);
  ptx::cp_async_8(smem + 16 * i + 8, from + 2, some < 8 ? some : 8);
  ptx::cp_async_16(smem + 4096 + 16 * i, from, some);
  ptx::cp_async_16_cached<0>(smem + 8192 + 16 * i, from, some);
  ptx::cp_async_4_if(smem + 12288 + 16 * i, from, 4, some % 2 == 0);
  ptx::cp_async_16_if(smem + 16384 + 16 * i, from, some, some % 3 != 0);
  ptx::cp_async_16_once_if(smem + 20480 + 16 * i, from, some, some % 3 != 1);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  keep_shared(out, smem, 24576);
}

// Entries of a table in shared memory and in global memory: an offset, a row and a column each.
__global__ void gathers(const unsigned* in, unsigned* out) {
  const unsigned smem = filled<Numbers::words>(in), i = threadIdx.x, table = smem + 32768 + 64 * i;
  int4* const there = reinterpret_cast<int4*>(out + 8192) + 4 * i;
  for (unsigned entry = 0; entry < 4; ++entry) {
    const unsigned bits = in[4 * i + entry];
    const int4 one = make_int4(static_cast<int>(bits % 1024), 0, static_cast<int>(bits >> 10 & 7) - 3,
                               static_cast<int>(bits >> 13 & 7) - 3);
    const unsigned words[4] = {static_cast<unsigned>(one.x), 0, static_cast<unsigned>(one.z),
                               static_cast<unsigned>(one.w)};
    ptx::st_shared_v4(table + 16 * entry, words);
    there[entry] = one;
  }
  __syncthreads();
  const float* const from = reinterpret_cast<const float*>(in) + 1024;
  ptx::cp_async_gather<4, 4, 16, 4>(4, 5, table, smem + 32 * i, from, 1, 2);
  ptx::cp_async_gather<1, 4, 16, 4>(4, 5, table + 16, smem + 32 * i + 16, from, 0, 3);
  ptx::cp_async_four<4, 0, 64, 256>(smem + 8192 + 256 * (i / 16) + 4 * (i % 16), from + i,
                                    i % 3 == 0 ? 0 : 4);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  keep_shared(out, smem, 16384);
}

// ---- Numbers ----

__global__ void numbers(const unsigned* in, unsigned* out) {
  const unsigned i = threadIdx.x, smem = filled<Numbers::words>(in);
  const unsigned* const bits = in + 8 * i;
  const float a = __uint_as_float(special<Numbers::tf32>(bits[0])), b = __uint_as_float(bits[1]);
  // No NaN of half precision, of which there are many that are one.
  const unsigned f16 = bits[2] & 0xbfffbfffu, more = bits[3] & 0xbfffbfffu;
  unsigned values[16] = {};
  values[0] = b == b ? ptx::cvt_rna_tf32(b) & ~0x1fffu : 0;
  values[1] = b == b ? ptx::cvt_rn_f16x2(b, small(bits[4])) : 0;
  values[2] = b == b ? ptx::cvt_rn_bf16x2(b, small(bits[4])) : 0;
  values[3] = bits_of(ptx::cvt_f32_f16(bits[2]));
  values[4] = bits_of(ptx::max_nan(a, b)), values[5] = bits_of(ptx::min_nan(a, b));
  values[6] = ptx::max_nan_f16x2(f16, more), values[7] = ptx::max_nan_bf16x2(f16, more);
  float largest = 0, trace = 0, sums[4], four[4];
  unsigned words[4];
  for (int k = 0; k < 4; ++k) {
    words[k] = bits[k];
    sums[k] = small(bits[k]), four[k] = __uint_as_float(special<Numbers::tf32>(bits[k + 4]) & ~0x1fffu);
  }
  ptx::st_shared_v4_rounded_if(smem + 16 * i, 0, words, largest, bits[5] % 2 == 0);
  values[8] = bits_of(largest);
  ptx::add_four<true>(sums, four, trace);
  for (int k = 0; k < 4; ++k) values[9 + k] = bits_of(sums[k]);
  values[13] = bits_of(trace);
  unsigned loaded[4];
  const int sources[4] = {static_cast<int>(bits[6] % 64) - 32, static_cast<int>(bits[7] % 64) - 32, 1, -1};
  ptx::ld_global_four_if<3>(loaded, reinterpret_cast<const float*>(in) + 32, sources);
  values[14] = loaded[0] ^ loaded[1], values[15] = loaded[2] ^ loaded[3];
  for (int k = 0; k < 16; ++k) out[16 * i + k] = values[k];
  keep_shared(out + 16 * blockDim.x, smem, 4096);
}

}  // namespace convtune::forms
