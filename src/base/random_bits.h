// Random numbers that are the same on every machine and can be asked for in any order.
#pragma once

#include <cstdint>

namespace convtune {

// 64 random bits of position `index` in the stream `seed`: the finaliser of SplitMix64 (Steele, Lea
// and Flood 2014) over both.
constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace convtune
