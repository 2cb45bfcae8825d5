// What a block of direct_stem_sm90.cuh works through, its shared memory, and how input rows get there: one
// warp copies units as they lie in x, a warpgroup rounds them to TF32 and moves each row to where its chunks
// begin.
#pragma once

#include "cuda/tile/constants.cuh"
#include "cuda/algorithms/direct_stem_sm90/config.h"
#include "cuda/ptx/wgmma.cuh"

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
  int begin, count;
  __device__ Rows() {
    constexpr unsigned kAll = static_cast<unsigned>(config.rows());
    const unsigned each = kAll / gridDim.x, longer = kAll - each * gridDim.x;  // blocks that have a row more
    begin = static_cast<int>(each * blockIdx.x + min(blockIdx.x, longer));
    count = static_cast<int>(each + (blockIdx.x < longer));
  }

  __device__ int image(int i) const { return (begin + i) / config.conv.p; }
  __device__ int row(int i) const { return (begin + i) % config.conv.p; }
  // Where an image's rows begin and end in this block.
  __device__ bool first(int i) const { return i == 0 || row(i) == 0; }
  __device__ bool last(int i) const { return i == count - 1 || row(i) == config.conv.p - 1; }
  // Units are numbered from 0, too; the first rows of an image have halo() more of them.
  __device__ int first_unit(int i) const { return i + config.halo() * (image(i) - image(0)); }
  // f(i, above, unit) for each in order: the unit `above` behind row i's first. Rows i to i + above use it.
  template <class F>
  __device__ void for_units(F&& f) const {
    int unit = 0;
#pragma unroll 1
    for (int i = 0; i < count; ++i)
#pragma unroll 1
      for (int above = first(i) ? 0 : config.halo(); above <= config.halo(); ++above) f(i, above, unit++);
  }
  __device__ int input_row(int i, int above) const {  // the unit's first; may lie outside
    return (row(i) + above) * config.conv.stride_h - config.conv.pad_top;
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

// One warp, of which one lane acts: x into the units, and the weights with the last unit that the first row
// needs. Without `in_bulk` the rounders read x themselves.
template <DirectStemSm90 config>
__device__ void load(const float* __restrict__ x, const float* __restrict__ packed, const Smem<config>& smem,
                     bool acts, bool in_bulk) {
  constexpr int kAhead = 3;  // units that are fetched into L2 before their place is free
  constexpr unsigned kRowBytes = config.conv.w * 4, kWeightBytes = static_cast<unsigned>(config.weight_bytes());
  const Rows<config> rows;
  int freed = 0;  // rows that are known to be done
  rows.for_units([&](int i, int above, int unit) {
    const int slot = unit % config.units;
    const unsigned raw = smem.raw + 8 * slot;
#pragma unroll 1
    for (; freed < rows.count && rows.first_unit(freed) <= unit - config.units; ++freed)
      ptx::mbarrier_wait(smem.done + 8 * (freed % config.units), freed / config.units & 1);
    const int row = rows.input_row(i, above), first = row < 0 ? 0 : row;
    const int copied = in_bulk ? max(min(row + config.unit_rows(), config.conv.h) - first, 0) : 0;
    const bool has_weights = unit == config.halo();
    ptx::mbarrier_arrive_expect_if(raw, config.conv.c * copied * kRowBytes + (has_weights ? kWeightBytes : 0),
                                   acts);
    const float* from = x + (static_cast<long long>(rows.image(i)) * config.conv.c * config.conv.h + first) * config.conv.w;
    unsigned to = smem.unit(slot) + (first - row) * kRowBytes;
    const int next = row + kAhead * config.conv.stride_h;
    const int fetched = in_bulk && next >= 0 ? min(next + config.unit_rows(), config.conv.h) - next : 0;
#pragma unroll 1
    for (int channel = 0; channel < config.conv.c; ++channel) {
      ptx::bulk_copy_to_shared_if(to, from, copied * kRowBytes, raw, acts && copied > 0);
      ptx::prefetch_l2_if(from + static_cast<long long>(next - first) * config.conv.w, fetched * kRowBytes,
                          acts && fetched > 0);
      from += static_cast<long long>(config.conv.h) * config.conv.w;
      to += config.unit_rows() * kRowBytes;
    }
    ptx::bulk_copy_to_shared_if(smem.weights, packed + blockIdx.y * (config.weight_bytes() / 4), kWeightBytes,
                                raw, acts && has_weights);
  });
}

// A chunk of shared memory, or zeros.
__device__ inline void load_chunk_if(unsigned* to, unsigned from, bool there) {
  asm volatile(
      "{\n.reg .pred there;\nsetp.ne.b32 there, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@there ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3])
      : "r"(from), "r"(static_cast<unsigned>(there))
      : "memory");
}

// A chunk, rounded: products drop the lower 13 bits, so half of what they are worth is added. `most` becomes
// the largest of absolute values, as bits.
__device__ inline void store_rounded_if(unsigned to, const unsigned* values, unsigned& most, bool stores) {
  asm volatile(
      "{\n.reg .pred stores;\n.reg .b32 size, b0, b1, b2, b3;\nsetp.ne.b32 stores, %6, 0;\n"
      "and.b32 size, %1, 0x7fffffff;\nmax.u32 %0, %0, size;\nadd.u32 b0, %1, 4096;\n"
      "and.b32 size, %2, 0x7fffffff;\nmax.u32 %0, %0, size;\nadd.u32 b1, %2, 4096;\n"
      "and.b32 size, %3, 0x7fffffff;\nmax.u32 %0, %0, size;\nadd.u32 b2, %3, 4096;\n"
      "and.b32 size, %4, 0x7fffffff;\nmax.u32 %0, %0, size;\nadd.u32 b3, %4, 4096;\n"
      "@stores st.shared.v4.b32 [%5], {b0, b1, b2, b3};\n}"
      : "+r"(most)
      : "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3]), "r"(to),
        "r"(static_cast<unsigned>(stores))
      : "memory");
}

// One warpgroup: units from `raw` to `full`. Rows that meet a number that is not finite are noted.
template <DirectStemSm90 config>
__device__ void round_units(const float* __restrict__ x, const Smem<config>& smem, int thread, bool in_bulk) {
  constexpr int kLines = config.conv.c * config.unit_rows(), kStored = config.stored_chunks();
  // A piece is so many chunks of a line: an odd number, so that the threads' pieces begin in different banks.
  constexpr int kPiece = DirectStemSm90::kPiece, kPieces = config.pieces();
  // A chunk of the window lies kBefore stored chunks before its own number, and begins kEarly columns into
  // it.
  constexpr int kBefore = (config.conv.pad_left + 3) / 4, kEarly = kBefore * 4 - config.conv.pad_left;
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
            (static_cast<long long>(rows.image(i)) * config.conv.c + channel) * config.conv.h + row;
        const bool there = row >= 0 && row < config.conv.h && column < config.conv.w;
        store_shared(buffer + e * 4, there ? __float_as_uint(__ldg(x + image_row * config.conv.w + column)) : 0);
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
        const bool there = piece < kAtOnce * kPieces && line < kLines && row >= 0 && row < config.conv.h;
        const unsigned from = buffer + (line * kStored + chunk) * 16;
#pragma unroll
        for (int read = 0; read < kRead; ++read)
          load_chunk_if(bits[e] + 4 * read, from + read * 16,
                        there && static_cast<unsigned>(chunk + read) < static_cast<unsigned>(kStored));
      }
      ptx::bar_sync(kRoundersBarrier, kRounders);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const int piece = thread + kRounders * e, line = first_line + piece / kPieces;
        const int first = piece % kPieces * kPiece;
        const unsigned to = buffer + (line * config.row_chunks() + first) * 16;
        const bool there = piece < kAtOnce * kPieces && line < kLines;
#pragma unroll
        for (int chunk = 0; chunk < kPiece; ++chunk)
          store_rounded_if(to + chunk * 16, bits[e] + 4 * chunk + kEarly, most,
                           there && first + chunk < config.row_chunks());
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
