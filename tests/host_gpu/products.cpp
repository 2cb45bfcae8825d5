// Matrices in fragments: loads, stores and products of a warp, and products of a warpgroup, each warp its
// quarter. A product of a warpgroup reads its operands when somebody waits for it, at the latest moment that
// a GPU could.
#include <bit>
#include <cmath>

#include "cluster.h"
#include "tensor_maps.h"

namespace host_gpu {
namespace {

float widened(Type type, unsigned bits) {
  return type == Type::bf16 ? std::bit_cast<float>(bits << 16)
                            : half_to_float(static_cast<unsigned short>(bits));
}
float truncated(unsigned bits) {
  return std::bit_cast<float>(bits & ~0x1fffu);
}

struct Matrices {
  unsigned* to;
  const unsigned* from;
  unsigned row;
  int count;
  bool transposed;
  bool is_known = true;  // the row that this lane names
};
template <bool kStores>
void move_matrices(void* const* lanes) {
  const auto lane = [&](int i) -> Matrices& { return *static_cast<Matrices*>(lanes[i]); };
  for (int m = 0; m < lane(0).count; ++m) {
    unsigned short tile[8][8];
    const auto row = [&](int i) { return at(lane(8 * m + i).row, 16, 16); };
    if (!kStores)
      for (int i = 0; i < 8; ++i) {
        std::memcpy(tile[i], row(i), 16);
        if (!lane(8 * m + i).is_known) std::memset(tile[i], kSpoilt, 16);
      }
    for (int i = 0; i < 32; ++i)
      for (int half = 0; half < 2; ++half) {
        const int group = i / 4, place = 2 * (i % 4) + half;
        unsigned short& element = lane(i).transposed ? tile[place][group] : tile[group][place];
        if (kStores)
          element = static_cast<unsigned short>(lane(i).from[m] >> (16 * half));
        else
          lane(i).to[m] = half == 0 ? element : lane(i).to[m] | static_cast<unsigned>(element) << 16;
      }
    if (kStores)
      for (int i = 0; i < 8; ++i) std::memcpy(row(i), tile[i], 16);
  }
}

// 16 rows of `a` in fragments: register 2p + u has row group + 8u, of piece p along k.
void unpack_a(Type type, int pieces, int lane, const unsigned* registers, float (*a)[16]) {
  const int group = lane / 4, thread = lane % 4;
  for (int i = 0; i < 2 * pieces; ++i) {
    float* const row = a[group + 8 * (i % 2)];
    if (type == Type::tf32) {
      row[thread + 4 * (i / 2)] = truncated(registers[i]);
    } else {
      row[2 * thread + 8 * (i / 2)] = widened(type, registers[i] & 0xffff);
      row[2 * thread + 8 * (i / 2) + 1] = widened(type, registers[i] >> 16);
    }
  }
}

struct Mma {
  Type type;
  int k;
  float* sums;
  const unsigned *a, *b;
};
void multiply_warp(void* const* lanes) {
  const auto& any = *static_cast<const Mma*>(lanes[0]);
  const int pieces = any.k == 16 || any.type == Type::tf32 ? 2 : 1;
  float a[16][16], b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& mine = *static_cast<const Mma*>(lanes[lane]);
    const int group = lane / 4, thread = lane % 4;
    unpack_a(any.type, pieces, lane, mine.a, a);
    for (int piece = 0; piece < pieces; ++piece) {
      if (any.type == Type::tf32) {
        b[thread + 4 * piece][group] = truncated(mine.b[piece]);
      } else {
        b[2 * thread + 8 * piece][group] = widened(any.type, mine.b[piece] & 0xffff);
        b[2 * thread + 8 * piece + 1][group] = widened(any.type, mine.b[piece] >> 16);
      }
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
      float& sum = static_cast<const Mma*>(lanes[lane])->sums[i];
      for (int k = 0; k < any.k; ++k) sum += a[row][k] * b[k][column];
    }
}

// Place of 16 bytes of an operand, the chunk-th along k of a row; k comes first in memory.
unsigned place_in_row(unsigned long long descriptor, int row, int chunk) {
  const auto field = [&](int shift) { return static_cast<unsigned>(descriptor >> shift & 0x3fff) * 16; };
  const int mode = static_cast<int>(descriptor >> 62);  // 0, or 1 to 3: exchanged within 128, 64 and 32 bytes
  const auto r = static_cast<unsigned>(row), c = static_cast<unsigned>(chunk);
  if (mode == 0) return field(0) + r / 8 * field(32) + r % 8 * 16 + c * field(16);
  const int exchange = 4 - mode;
  return exchanged((field(0) + r / 8 * field(32) + r % 8 * (16u << exchange) + 16 * c) % kWindow, exchange);
}
// Place of the k-th number of a row where rows come first, 64 or 32 beside each other, exchanged within 128
// or 64 bytes.
unsigned place_of_rows(unsigned long long descriptor, int row, int k) {
  const auto field = [&](int shift) { return static_cast<unsigned>(descriptor >> shift & 0x3fff) * 16; };
  const int mode = static_cast<int>(descriptor >> 62);
  if (mode != 1 && mode != 2) fail("rows of m or n that are not exchanged within 128 or 64 bytes");
  const unsigned beside = mode == 1 ? 64 : 32;
  const auto r = static_cast<unsigned>(row), of_k = static_cast<unsigned>(k);
  const unsigned address =
      field(0) + r / beside * field(16) + of_k / 8 * field(32) + of_k % 8 * (2 * beside) + r % beside * 2;
  return (exchanged(address & ~15u, 4 - mode) | (address & 15)) % kWindow;
}

// Data that no fence or no barrier has shown are anything: it may be of outputs that nobody stores, so it is
// no fault by itself.
void read_operand(const Product& p, unsigned from, void* to, unsigned bytes) {
  if (unfenced_writer(p.window + from, bytes, p.fenced) >= 0 || !is_ordered(p.window + from, bytes))
    std::memset(to, kSpoilt, bytes);
  else
    std::memcpy(to, at(p.window + from, bytes, bytes), bytes);
}

// A row of an operand: eight numbers a chunk in half precision, four in TF32, `step` apart.
void unpack_row(const Product& p, unsigned long long descriptor, int row, float* to, int step) {
  const bool words = p.what.type == Type::tf32;
  for (int chunk = 0; chunk < 2; ++chunk) {
    unsigned four[4];
    read_operand(p, place_in_row(descriptor, row, chunk), four, 16);
    for (int i = 0; i < (words ? 4 : 8); ++i)
      to[((words ? 4 : 8) * chunk + i) * step] =
          words ? truncated(four[i]) : widened(p.what.type, four[i / 2] >> (16 * (i % 2)) & 0xffff);
  }
}

void multiply(const Product& p) {
  const int k_all = p.what.type == Type::tf32 ? 8 : 16, columns = p.what.columns;
  static float a[16][16], b[16][256], d[16][256];
  for (int lane = 0; lane < 32 && p.what.a_registers; ++lane)
    unpack_a(p.what.type, 2, lane, p.a[static_cast<std::size_t>(lane)].data(), a);
  const auto number = [&](unsigned long long descriptor, int row, int k) {
    unsigned short bits;
    read_operand(p, place_of_rows(descriptor, row, k), &bits, 2);
    return widened(p.what.type, bits);
  };
  for (int row = 0; row < 16 && !p.what.a_registers; ++row)
    if (p.what.rows_of_m)
      for (int k = 0; k < k_all; ++k) a[row][k] = number(p.what.a, 16 * p.quarter + row, k);
    else
      unpack_row(p, p.what.a, 16 * p.quarter + row, a[row], 1);
  for (int n = 0; n < columns; ++n) {
    if (!p.what.rows_of_n) {
      unpack_row(p, p.what.b, n, &b[0][n], 256);
      continue;
    }
    for (int k = 0; k < k_all; ++k) b[k][n] = number(p.what.b, n, k);
  }
  const auto for_each_sum = [&](const auto& f) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < columns / 2; ++i)
        f(p.sums[static_cast<std::size_t>(lane)][i],
          d[lane / 4 + 8 * (i / 2 % 2)][i / 4 * 8 + 2 * (lane % 4) + i % 2]);
  };
  for_each_sum([&](float sum, float& of_d) { of_d = p.what.adds ? sum : 0; });
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < k_all; ++k)
      for (int n = 0; n < columns; ++n) d[row][n] += a[row][k] * b[k][n];
  for_each_sum([](float& sum, float of_d) { sum = of_d; });
}

struct Issued {
  const Wgmma* what;
  float* sums;
};
void issue(void* const* lanes) {
  Product p{.what = *static_cast<const Issued*>(lanes[0])->what,
            .window = current->of->rank * kWindow,
            .quarter = static_cast<int>(current->thread.x / 32 % 4),
            .fenced = current->fenced,
            .sums = {},
            .a = {}};
  for (std::size_t lane = 0; lane < 32; ++lane) {
    if (!lanes[lane]) fail("a product of a warpgroup without all lanes");
    const auto& [what, sums] = *static_cast<const Issued*>(lanes[lane]);
    if (what->b != p.what.b || what->adds != p.what.adds || (!what->a_registers && what->a != p.what.a))
      fail("lanes of a warp give different operands to a product of their warpgroup");
    p.sums[lane] = sums;
    if (what->a_registers) std::memcpy(p.a[lane].data(), what->a_registers, 16);
  }
  if (settings.async == Async::eager) return multiply(p);
  current->warp->products.add(std::move(p));
}

}  // namespace

float half_to_float(unsigned short bits) {
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}
unsigned short to_half(float value) {
  return std::isnan(value) ? 0x7fff : std::bit_cast<unsigned short>(static_cast<_Float16>(value));
}
unsigned short to_bfloat(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto bits = std::bit_cast<unsigned>(value);
  return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void ldmatrix(unsigned* to, int matrices, unsigned row, bool transposed) {
  Matrices mine{to, nullptr, row, matrices, transposed};
  if (host_gpu_watches && current->lane < 8 * matrices) mine.is_known = will_load_row(row);
  meet(Meeting::ldmatrix, &mine, move_matrices<false>);
}
void stmatrix(unsigned row, const unsigned* from, bool transposed) {
  Matrices mine{nullptr, from, row, 4, transposed};
  at(row, 16, 16);
  if (host_gpu_watches) will_write(row, 16, false);
  meet(Meeting::stmatrix, &mine, move_matrices<true>);
}
void mma(Type type, int k, float* sums, const unsigned* a, const unsigned* b) {
  Mma mine{type, k, sums, a, b};
  meet(Meeting::mma, &mine, multiply_warp);
}
void wgmma(const Wgmma& what, float* sums) {
  Issued mine{&what, sums};
  meet(Meeting::wgmma, &mine, issue);
}
void wgmma_commit() {
  meet(Meeting::wgmma_commit, nullptr, [](void* const*) {
    if (settings.async != Async::eager) current->warp->products.commit();
  });
}
void wgmma_wait(int pending) {
  meet(Meeting::wgmma_wait, &pending, [](void* const* lanes) {
    current->warp->products.wait(*static_cast<const int*>(lanes[0]), multiply);
  });
}

}  // namespace host_gpu
