// What a block of direct_stem_sm90.cuh works through, its shared memory, and how input rows get there: one
// warp copies units as they lie in x, a warpgroup rounds them to TF32 and moves each row to where its chunks
// begin.
#pragma once

#include "constants.cuh"
#include "direct_stem_sm90.h"
#include "ptx_wgmma.cuh"

namespace convtune {
namespace stem {

// `inline`: what is local to a file gets a name with a random part, and no two compilations the same bytes.
inline constexpr int kRounders = 128;       // threads that round
inline constexpr int kRoundersBarrier = 1;  // their barrier's number

__device__ inline bool is_finite_tf32(unsigned bits) {
  return (bits & 0x7f800000) != 0x7f800000;
}

// The output rows of a block, numbered from 0: some that follow each other, of one image or of several.
template <DirectStemSm90 config>
struct Rows {
  int begin = static_cast<int>(config.rows() * blockIdx.x / gridDim.x);
  int count = static_cast<int>(config.rows() * (blockIdx.x + 1) / gridDim.x) - begin;

  __device__ int image(int i) const { return (begin + i) / config.p; }
  __device__ int row(int i) const { return (begin + i) % config.p; }
  // Where an image's rows begin and end in this block.
  __device__ bool first(int i) const { return i == 0 || row(i) == 0; }
  __device__ bool last(int i) const { return i == count - 1 || row(i) == config.p - 1; }
  // Units are numbered from 0, too; the first rows of an image have halo() more of them.
  __device__ int first_unit(int i) const { return i + config.halo() * (image(i) - image(0)); }
  // f(i, above, unit) for each in order: the unit `above` behind row i's first. Rows i to i + above use it.
  template <class F>
  __device__ void for_units(F&& f) const {
    int unit = 0;
    for (int i = 0; i < count; ++i)
      for (int above = first(i) ? 0 : config.halo(); above <= config.halo(); ++above) f(i, above, unit++);
  }
  __device__ int input_row(int i, int above) const {  // the unit's first; may lie outside
    return (row(i) + above) * config.stride_h - config.pad_top;
  }
};

// Shared memory, by its addresses there. Barriers: a unit is `raw`, `full`, and of a row `done`; a slot of
// outputs is `filled` or `free`; a consumer has its `turn`.
template <DirectStemSm90 config>
struct Smem {
  unsigned weights, slots, units, carry, bias, raw, full, done, filled, free, turn, repaired;
  __device__ explicit Smem(unsigned start)
      : weights(start),
        slots(weights + static_cast<unsigned>(config.weight_bytes())),
        units(slots + config.kSlots * config.slot_bytes()),
        carry(units + static_cast<unsigned>(config.units_bytes())),
        bias(carry + 2 * config.carry_bytes()),
        raw(bias + 4 * config.filters),
        full(raw + 8 * config.units),
        done(full + 8 * config.units),
        filled(done + 8 * config.units),
        free(filled + 8 * config.kSlots),
        turn(free + 8 * config.kSlots),
        repaired(turn + 8 * config.consumers) {}
  __device__ unsigned unit(int slot) const {
    return units + slot * static_cast<unsigned>(config.unit_bytes());
  }
};

__device__ inline void store_shared(unsigned address, unsigned value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ inline unsigned load_shared(unsigned address) {
  unsigned value;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}

// One warp, of which one lane acts: x into the units. Without `in_bulk` the rounders read x themselves.
template <DirectStemSm90 config>
__device__ void load(const float* __restrict__ x, const Smem<config>& smem, bool acts, bool in_bulk) {
  constexpr int kAhead = 3;  // units that are fetched into L2 before their place is free
  const Rows<config> rows;
  int freed = 0;  // rows that are known to be done
  rows.for_units([&](int i, int above, int unit) {
    const int slot = unit % config.units;
    for (; freed < rows.count && rows.first_unit(freed) <= unit - config.units; ++freed)
      ptx::mbarrier_wait(smem.done + 8 * (freed % config.units), freed / config.units & 1);
    const int row = rows.input_row(i, above), first = row < 0 ? 0 : row;
    const int end = min(row + config.unit_rows(), config.h);
    if (!in_bulk || first >= end) {
      ptx::mbarrier_arrive_if(smem.raw + 8 * slot, acts);
      return;
    }
    constexpr int kRowBytes = config.w * 4;
    const float* from = x + (static_cast<long long>(rows.image(i)) * config.c * config.h + first) * config.w;
    ptx::mbarrier_arrive_expect_if(smem.raw + 8 * slot, config.c * (end - first) * kRowBytes, acts);
#pragma unroll 1
    for (int channel = 0; channel < config.c; ++channel)
      ptx::bulk_copy_to_shared_if(smem.unit(slot) + (channel * config.unit_rows() + first - row) * kRowBytes,
                                  from + static_cast<long long>(channel) * config.h * config.w,
                                  (end - first) * kRowBytes, smem.raw + 8 * slot, acts);
    const int next = row + kAhead * config.stride_h, next_end = min(next + config.unit_rows(), config.h);
    if (acts && next >= 0 && next < next_end)
#pragma unroll 1
      for (int channel = 0; channel < config.c; ++channel)
        ptx::prefetch_l2(from + (static_cast<long long>(channel) * config.h + next - first) * config.w,
                         (next_end - next) * kRowBytes);
  });
}

// One warpgroup: units from `raw` to `full`. Rows that meet a number that is not finite are noted.
template <DirectStemSm90 config>
__device__ void round_units(const float* __restrict__ x, const Smem<config>& smem, int thread, bool in_bulk) {
  constexpr int kLines = config.c * config.unit_rows(), kStored = config.stored_chunks();
  // A piece is so many chunks of a line: an odd number, so that the threads' pieces begin in different banks.
  constexpr int kPiece = DirectStemSm90::kPiece, kPieces = config.pieces();
  // A chunk of the window lies kBefore stored chunks before its own number, and begins kEarly columns into
  // it.
  constexpr int kBefore = (config.pad_left + 3) / 4, kEarly = kBefore * 4 - config.pad_left;
  constexpr int kRead = kPiece + (kEarly > 0);
  // So many lines are in registers at once. Lines that grow are moved from the last to the first, others from
  // the first on: so none is written over before it was read.
  constexpr int kMost = DirectStemSm90::kMostPieces / kPieces, kAtOnce = kMost < kLines ? kMost : kLines;
  constexpr int kBatches = (kLines + kAtOnce - 1) / kAtOnce;
  constexpr int kEach = (kAtOnce * kPieces + kRounders - 1) / kRounders;
  constexpr bool kBackwards = config.row_chunks() >= kStored;
  const Rows<config> rows;
  rows.for_units([&](int i, int above, int unit) {
    const int slot = unit % config.units, first_row = rows.input_row(i, above);
    const unsigned buffer = smem.unit(slot);
    ptx::mbarrier_wait(smem.raw + 8 * slot, unit / config.units & 1);
    if (!in_bulk) {
#pragma unroll 1
      for (int e = thread; e < kLines * kStored * 4; e += kRounders) {
        const int column = e % (kStored * 4), line = e / (kStored * 4);
        const int row = first_row + line % config.unit_rows(), channel = line / config.unit_rows();
        const long long image_row =
            (static_cast<long long>(rows.image(i)) * config.c + channel) * config.h + row;
        const bool there = row >= 0 && row < config.h && column < config.w;
        store_shared(buffer + e * 4, there ? __float_as_uint(__ldg(x + image_row * config.w + column)) : 0);
      }
      ptx::bar_sync(kRoundersBarrier, kRounders);
    }
    unsigned most = 0;  // of all absolute values, as bits
#pragma unroll 1
    for (int batch = 0; batch < kBatches; ++batch) {
      const int first_line = (kBackwards ? kBatches - 1 - batch : batch) * kAtOnce;
      unsigned bits[kEach][kRead * 4];
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int piece = thread + kRounders * e, line = first_line + piece / kPieces;
        const int row = first_row + line % config.unit_rows(), chunk = piece % kPieces * kPiece - kBefore;
        const bool there = piece < kAtOnce * kPieces && line < kLines && row >= 0 && row < config.h;
#pragma unroll
        for (int read = 0; read < kRead; ++read) {
          unsigned(&to)[kRead * 4] = bits[e];
          if (there && chunk + read >= 0 && chunk + read < kStored)
            asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(to[4 * read]), "=r"(to[4 * read + 1]), "=r"(to[4 * read + 2]),
                           "=r"(to[4 * read + 3])
                         : "r"(buffer + (line * kStored + chunk + read) * 16)
                         : "memory");
          else
            to[4 * read] = to[4 * read + 1] = to[4 * read + 2] = to[4 * read + 3] = 0;
        }
      }
      ptx::bar_sync(kRoundersBarrier, kRounders);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int piece = thread + kRounders * e, line = first_line + piece / kPieces;
        const int first = piece % kPieces * kPiece;
#pragma unroll
        for (int chunk = 0; chunk < kPiece; ++chunk) {
          unsigned rounded[4];
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const unsigned raw = bits[e][4 * chunk + kEarly + j];
            // Products drop the lower 13 bits: half of what they are worth is added, which rounds.
            rounded[j] = raw + 0x1000;
            most = max(most, raw & 0x7fffffff);
          }
          if (piece < kAtOnce * kPieces && line < kLines && first + chunk < config.row_chunks())
            asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(
                             buffer + (line * config.row_chunks() + first + chunk) * 16),
                         "r"(rounded[0]), "r"(rounded[1]), "r"(rounded[2]), "r"(rounded[3])
                         : "memory");
        }
      }
    }
    if (most + 0x1000 >= 0x7f800000) {
      asm volatile("red.shared.min.s32 [%0], %1;" ::"r"(smem.repaired), "r"(i) : "memory");
      asm volatile("red.shared.max.s32 [%0], %1;" ::"r"(smem.repaired + 4),
                   "r"(min(i + above, rows.count - 1))
                   : "memory");
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(smem.full + 8 * slot);
  });
}

}  // namespace stem
}  // namespace convtune
