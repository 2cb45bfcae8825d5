// Arithmetic of whole numbers for geometry, on the host and in device code.
#pragma once

namespace convtune {

template <class A, class B>
constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}
template <class A, class B>
constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}
constexpr int lesser(int a, int b) {
  return a < b ? a : b;
}
constexpr int greater(int a, int b) {
  return a > b ? a : b;
}
constexpr int gcd(int a, int b) {
  while (b != 0) {
    const int rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// Registers that `blocks` blocks of `threads` threads on an SM leave to a thread: they are dealt by eights.
constexpr int registers_for(int threads, int blocks) {
  return lesser(65536 / (threads * blocks) / 8 * 8, 255);
}
// As above, where warps do not share the SM's quarters evenly: a quarter belongs to every fourth warp.
constexpr int registers_by_quarters(int threads, int blocks) {
  return registers_for(round_up(threads * blocks, 128), 1);
}

// Tells whether every choice of a config is within the range that its visit() names.
template <class Config>
constexpr bool is_in_range(const Config& config) {
  bool in_range = true;
  Config::visit(config, [&](const char*, const auto& value, auto... about) {
    if constexpr (sizeof...(about) > 0) {
      const auto within = [&](long long least, long long most, const char*) {
        return least <= value && value <= most;
      };
      in_range = in_range && within(about...);
    }
  });
  return in_range;
}

}  // namespace convtune
