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

}  // namespace convtune
