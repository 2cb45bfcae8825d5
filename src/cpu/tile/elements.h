// Elements of tensors in vector code, which is compiled for each of their types.
#pragma once

#include <cstdint>

namespace convtune::cpu {

using Bf16 = std::uint16_t;  // its bits
// The same type with floats rounded by vcvtneps2bf16, which processors with avx512_bf16 have: denormal
// numbers become 0.
enum class InstructionBf16 : std::uint16_t {};

}  // namespace convtune::cpu
