// Written from the standard's text; its constants are computed from their definition there.
#include "base/sha256.h"

#include <array>
#include <bit>
#include <cstdint>

namespace convtune {
namespace {

using std::uint32_t, std::uint64_t;

// The first 64 primes.
constexpr auto kPrimes = [] {
  std::array<uint32_t, 64> primes{};
  uint32_t found = 0;
  for (uint32_t candidate = 2; found < primes.size(); ++candidate) {
    bool prime = true;
    for (uint32_t i = 0; i < found && prime; ++i) prime = candidate % primes[i] != 0;
    if (prime) primes[found++] = candidate;
  }
  return primes;
}();

// The first 32 bits of the fraction of prime^(1/degree): the low bits of the largest integer whose power
// does not exceed prime * 2^(32*degree).
constexpr uint32_t root_fraction(uint32_t prime, int degree) {
  __extension__ typedef unsigned __int128 Wide;
  uint64_t root = 0;
  for (int bit = 36; bit >= 0; --bit) {
    const uint64_t next = root | (uint64_t{1} << bit);
    Wide power = next;
    for (int i = 1; i < degree; ++i) power *= next;
    if (power <= (Wide{prime} << (32 * degree))) root = next;
  }
  return static_cast<uint32_t>(root);
}

template <int kDegree, std::size_t kCount>
constexpr auto root_fractions() {
  std::array<uint32_t, kCount> fractions{};
  for (std::size_t i = 0; i < kCount; ++i) fractions[i] = root_fraction(kPrimes[i], kDegree);
  return fractions;
}

constexpr std::array<uint32_t, 8> kStart = root_fractions<2, 8>();
constexpr std::array<uint32_t, 64> kRounds = root_fractions<3, 64>();

using State = std::array<uint32_t, 8>;

void add_block(State& state, const unsigned char* block) {
  std::array<uint32_t, 64> w;
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRounds[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const State mixed = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state[i] += mixed[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  constexpr std::size_t kBlock = 64;
  State state = kStart;
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  const std::size_t whole = bytes.size() / kBlock * kBlock;
  for (std::size_t at = 0; at < whole; at += kBlock) add_block(state, data + at);
  // The end: a one bit, zeros, and the length in bits as the last 8 bytes of a block.
  std::array<unsigned char, 2 * kBlock> tail{};
  const std::size_t left = bytes.size() - whole;
  for (std::size_t i = 0; i < left; ++i) tail[i] = data[whole + i];
  tail[left] = 0x80;
  const std::size_t end = left + 9 <= kBlock ? kBlock : 2 * kBlock;
  const uint64_t bits = uint64_t{bytes.size()} * 8;
  for (std::size_t i = 0; i < 8; ++i) tail[end - 1 - i] = static_cast<unsigned char>(bits >> (8 * i));
  for (std::size_t at = 0; at < end; at += kBlock) add_block(state, tail.data() + at);
  std::string text;
  for (const uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

}  // namespace convtune
