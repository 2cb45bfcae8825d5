// Numbers of fp32 as two of TF32 each, for products of about 22 bits.
#pragma once

namespace convtune {

// Cuts each number to what fits, and keeps what is left. An infinity leaves nothing.
__device__ __forceinline__ void split_tf32(unsigned (&numbers)[4], unsigned (&rest)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const unsigned fits = numbers[i] & 0xffffe000u;
    const bool infinite = (numbers[i] & 0x7fffffffu) == 0x7f800000u;
    rest[i] = infinite ? 0 : __float_as_uint(__uint_as_float(numbers[i]) - __uint_as_float(fits));
    // A NaN whose higher bits are zeros stays one.
    numbers[i] = (numbers[i] & 0x7fffffffu) > 0x7f800000u ? 0x7fffe000u : fits;
  }
}

}  // namespace convtune
