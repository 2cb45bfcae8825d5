// Describes the work of a block of direct_stem_sm90.cuh, its shared memory, and how input rows get
// there: one warp copies units as they lie in x, a warpgroup rounds them to TF32 and moves each row to where
// its chunks begin.
#pragma once

#include "cuda/algorithms/direct_stem_sm90/config.h"
#include "cuda/ptx/several.cuh"
#include "cuda/ptx/wgmma_tf32.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/ring.cuh"
#include "cuda/tile/tf32.cuh"

namespace convtune::direct_stem_sm90 {

// `inline`: what is local to a file gets a name with a random part, and no two compilations the same bytes.
inline constexpr int kRounders = 128;       // threads that round
inline constexpr int kRoundersBarrier = 1;  // their barrier's number

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
  // Returns the first and last row of an image in this block.
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

// Locates the regions of shared memory; units are numbered on and on, and take its slots in
// turn.
template <DirectStemSm90 config>
struct Sizes {
  static constexpr auto kAt = config.smem();
  static constexpr int kUnits = config.units, kUnitBytes = static_cast<int>(config.unit_bytes());
};

// One warp, of which one lane acts: x into the units, and the weights with the last unit that the first row
// needs. Without `in_bulk` the rounders read x themselves.
template <DirectStemSm90 config>
__device__ void load(const float* __restrict__ x, const float* __restrict__ packed, unsigned smem, bool acts,
                     bool in_bulk) {
  constexpr int kAhead = 3;  // units that are fetched into L2 before their place is free
  constexpr unsigned kRowBytes = config.conv.w * 4,
                     kWeightBytes = static_cast<unsigned>(config.weight_bytes());
  using S = Sizes<config>;
  const Rows<config> rows;
  Ring<S::kUnits> ring, done;
  int freed = 0;  // rows that are known to be done
  rows.for_units([&](int i, int above, int unit) {
    const unsigned raw = ring.barrier(smem + S::kAt.raw);
#pragma unroll 1
    for (; freed < rows.count && rows.first_unit(freed) <= unit - S::kUnits; ++freed, done.next())
      done.wait_full(smem + S::kAt.done);
    const int row = rows.input_row(i, above), first = row < 0 ? 0 : row;
    const int copied = in_bulk ? max(min(row + config.unit_rows(), config.conv.h) - first, 0) : 0;
    const bool has_weights = unit == config.halo();
    ptx::mbarrier_arrive_expect_if(raw, config.conv.c * copied * kRowBytes + (has_weights ? kWeightBytes : 0),
                                   acts);
    const float* from =
        x + (static_cast<long long>(rows.image(i)) * config.conv.c * config.conv.h + first) * config.conv.w;
    unsigned to = smem + S::kAt.units + ring.slot * S::kUnitBytes + (first - row) * kRowBytes;
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
    ptx::bulk_copy_to_shared_if(smem + S::kAt.weights, packed + blockIdx.y * (kWeightBytes / 4), kWeightBytes,
                                raw, acts && has_weights);
    ring.next();
    __syncwarp();  // lanes that only wait keep up with the one that copies: the ring must not lap them
  });
}

// One warpgroup: units from `raw` to `full`. Rows that meet a number that is not finite are noted.
template <DirectStemSm90 config>
__device__ void round_units(const float* __restrict__ x, unsigned smem, int thread, bool in_bulk) {
  constexpr int kLines = config.conv.c * config.unit_rows(), kStored = config.stored_chunks();
  // A piece is so many chunks of a line: an odd number, so that the threads' pieces begin in different banks.
  constexpr int kPiece = DirectStemSm90::kPiece, kPieces = config.pieces();
  // A chunk of the window lies kBefore stored chunks before its own number, and begins kEarly columns into
  // it.
  constexpr int kBefore = (config.conv.pad_left + 3) / 4, kEarly = kBefore * 4 - config.conv.pad_left;
  constexpr int kRead = kPiece + (kEarly > 0);
  // This many lines are in registers at once. Lines that grow are moved from the last to the first, others
  // from the first on: so none is written over before it was read.
  constexpr int kAtOnce = lesser(DirectStemSm90::kMostPieces / kPieces, kLines);
  constexpr int kBatches = ceil_div(kLines, kAtOnce);
  constexpr int kEach = ceil_div(kAtOnce * kPieces, kRounders);
  constexpr bool kBackwards = config.row_chunks() >= kStored;
  using S = Sizes<config>;
  const Rows<config> rows;
  Ring<S::kUnits> ring;
  Ring<config.full_barriers()> full;
  rows.for_units([&](int i, int above, int) {
    const int first_row = rows.input_row(i, above);
    const unsigned buffer = smem + S::kAt.units + ring.slot * S::kUnitBytes;
    ring.wait_full(smem + S::kAt.raw);
    if (!in_bulk) {
#pragma unroll 1
      for (int e = thread; e < kLines * kStored * 4; e += kRounders) {
        const int column = e % (kStored * 4), line = e / (kStored * 4);
        const int row = first_row + line % config.unit_rows(), channel = line / config.unit_rows();
        const long long image_row =
            (static_cast<long long>(rows.image(i)) * config.conv.c + channel) * config.conv.h + row;
        const bool there = row >= 0 && row < config.conv.h && column < config.conv.w;
        ptx::st_shared(buffer + e * 4, there ? __ldg(x + image_row * config.conv.w + column) : 0.0f);
      }
      ptx::bar_sync(kRoundersBarrier, kRounders);
    }
    float largest = 0;  // for this thread's numbers; NaN where one is
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
          ptx::ld_shared_v4_if(bits[e] + 4 * read, from + read * 16,
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
          ptx::st_shared_v4_rounded_if(to, chunk * 16, bits[e] + 4 * chunk + kEarly, largest,
                                       there && first + chunk < config.row_chunks());
      }
    }
    if (!(largest < kTf32Overflow)) {  // a value that rounds to infinity, too
      ptx::red_shared_min(smem + S::kAt.repaired, i);
      ptx::red_shared_max(smem + S::kAt.repaired + 4, min(i + above, rows.count - 1));
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(full.barrier(smem + S::kAt.full));
    ring.next(), full.next();
  });
}

}  // namespace convtune::direct_stem_sm90
