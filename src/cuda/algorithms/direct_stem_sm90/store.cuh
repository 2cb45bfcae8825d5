// How the sums of direct_stem_sm90.cuh get to memory: consumers put them into slots of shared memory, one
// tile after the other, and a warp sends the slots.
//
// Only whole sectors are sent, since a sector that two stores share is read from memory twice. Where a row
// does not end with a sector, its last values are carried: the next row's run begins with them.
//
//   row p     | c c . . . . . . | . . . . . . . . | . . . . .          c: carried from row p - 1
//   row p + 1                                      c c c c c | . . .
//
// Rows of filters 8 apart begin equally far behind a sector: a plane of them is one box for the copy engine.
// The first values of a block's first row of an image and the last of its last have sectors of their own, and
// are stored by the consumers.
#pragma once

#include "cuda/algorithms/direct_stem_sm90/load.cuh"

namespace convtune::direct_stem_sm90 {

// y as [n][k / 8][8 * p * q], in boxes of a plane's runs: short ones, those a sector longer, those of whole
// tiles.
struct Maps {
  ptx::TensorMap y[3];
};

// Describes a tile at the time of its store.
struct Tile {
  int item;  // its number in the block
  int image;
  int first;  // position of its image
  int positions;
  bool begins, ends;  // the block's rows of that image
};
template <DirectStemSm90 config>
__device__ Tile tile_of(const Rows<config>& rows, int i, int tile) {
  const bool last = tile == config.tiles() - 1;
  return {i * config.tiles() + tile,
          rows.image(i),
          rows.row(i) * config.conv.q + tile * DirectStemSm90::kTile,
          last ? config.last_tile() : DirectStemSm90::kTile,
          rows.first(i) && tile == 0,
          rows.last(i) && last};
}

// A plane's run: `carried` values are there before the tile's first.
struct Run {
  int carried, length;
};
template <DirectStemSm90 config>
__device__ Run run_of(int plane, const Tile& tile) {
  constexpr unsigned kSector = DirectStemSm90::kSector;
  constexpr int kApart =
      static_cast<int>(static_cast<long long>(config.conv.p) * config.conv.q % DirectStemSm90::kSector);
  const unsigned carried = static_cast<unsigned>(plane * kApart + tile.first) % kSector;
  return {static_cast<int>(carried),
          static_cast<int>((carried + static_cast<unsigned>(tile.positions)) / kSector * kSector)};
}

// Tells whether the consumers have stored it: it would begin within a sector that is not this block's alone.
__device__ inline bool stored_before(const Tile& tile, const Run& run) {
  return tile.begins && run.carried > 0;
}

// One warp, of which one lane acts unless y is stored without boxes.
template <DirectStemSm90 config>
__device__ void store(const ptx::TensorMap* maps, float* __restrict__ y, unsigned smem, int lane,
                      bool in_boxes) {
  constexpr int kPlanes = DirectStemSm90::kPlanes, kPlanesOfSlot = DirectStemSm90::kPlanesOfSlot;
  constexpr int kImage = config.conv.p * config.conv.q;
  using S = Sizes<config>;
  const Rows<config> rows;
  const bool acts = lane == 0;
  const int first_member = static_cast<int>(blockIdx.y) * config.members();
  Ring<DirectStemSm90::kSlots> ring;
  unsigned before = 0;  // the value that tells that the slot before is free
#pragma unroll 1
  for (int i = 0; i < rows.count; ++i)
#pragma unroll 1
    for (int t = 0; t < config.tiles(); ++t) {
      const Tile tile = tile_of<config>(rows, i, t);
#pragma unroll 1
      for (int part = 0; part < kPlanes; part += kPlanesOfSlot) {
        const unsigned from = smem + S::kAt.slots + ring.slot * config.slot_bytes();
        ring.wait_full(smem + S::kAt.filled);
        if (in_boxes) {
#pragma unroll
          for (int j = 0; j < kPlanesOfSlot; ++j) {
            const Run run = run_of<config>(part + j, tile);
            const int map = t < config.tiles() - 1 ? 2 : run.length > config.short_run();
            ptx::store_box_if(maps + map, (part + j) * kImage + tile.first - run.carried, first_member,
                              tile.image, from + j * config.plane_bytes(), acts && !stored_before(tile, run));
          }
        } else {
#pragma unroll 1
          for (int j = 0; j < kPlanesOfSlot; ++j) {
            const Run run = run_of<config>(part + j, tile);
            const int count = stored_before(tile, run) ? 0 : config.members() * run.length;
#pragma unroll 1
            for (int e = lane; e < count; e += 32) {
              const int filter = kPlanes * (first_member + e / run.length) + part + j;
              if (filter < config.conv.k)
                y[(static_cast<long long>(tile.image) * config.conv.k + filter) * kImage + tile.first -
                  run.carried + e % run.length] =
                    __uint_as_float(ptx::ld_shared(from + j * config.plane_bytes() + e * 4));
            }
          }
        }
        ptx::bulk_commit_group();
        ptx::bulk_wait_read_but<1>();
        ptx::mbarrier_arrive_if(before, (acts || !in_boxes) && tile.item + part > 0);
        before = ring.barrier(smem + S::kAt.free);
        ring.next();
        __syncwarp();  // as in load()
      }
    }
  ptx::bulk_wait();
}

// Returns the index of a plane's pair in the sums: at the first of two positions, and 2 behind at the second.
__device__ constexpr int sum_of(int pair) {
  return pair / 2 * 4 + pair % 2;
}

// Stores the sectors that no run of whole sectors covers: in the first tile of a block's rows of an image the
// runs that would begin within a sector, in the last tile the outputs behind its runs.
template <DirectStemSm90 config>
__device__ __forceinline__ void store_ends(const float (&sums)[config.sums()], float* __restrict__ y,
                                           const Tile& tile, int thread) {
  constexpr int kPairs = config.filters / 32;
  constexpr long long kImage = config.conv.p * config.conv.q;
  const int at = thread / 32 * 16 + thread % 32 / 4;
  const int filter = static_cast<int>(blockIdx.y) * config.filters + DirectStemSm90::kPlanes * (thread % 4);
  float* const mine =
      y + (static_cast<long long>(tile.image) * config.conv.k + filter) * kImage + tile.first + at;
#pragma unroll
  for (int plane = 0; plane < DirectStemSm90::kPlanes; ++plane) {
    const Run run = run_of<config>(plane, tile);
    bool here[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int position = at + 8 * half;
      here[half] = position < tile.positions &&
                   (position + run.carried < run.length ? stored_before(tile, run) : tile.ends);
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      constexpr bool kAll = config.conv.k % config.filters == 0;
      const int apart = plane + 4 * DirectStemSm90::kPlanes * pair;
      const int sum = sum_of(plane * kPairs + pair);
      const bool stores[2] = {here[0] && (kAll || filter + apart < config.conv.k),
                              here[1] && (kAll || filter + apart < config.conv.k)};
      ptx::st_global_two_if(mine + apart * kImage, sums[sum], sums[sum + 2], stores);
    }
  }
}

// A consumer's part of a tile into the slots. The next consumer may begin when `next_turn` is told, after
// half of the planes. This is why no phase is mistaken and no carried value lost: what it uses then was freed
// after the slots of this half were filled, and it comes to the second half by slots that this one has filled
// by then.
template <DirectStemSm90 config, bool within>
__device__ __forceinline__ void stage(const float (&sums)[config.sums()], unsigned smem, const Tile& tile,
                                      unsigned next_turn, int thread) {
  constexpr int kPlanes = DirectStemSm90::kPlanes, kSector = DirectStemSm90::kSector;
  constexpr int kPlanesOfSlot = DirectStemSm90::kPlanesOfSlot, kParts = kPlanes / kPlanesOfSlot;
  constexpr int kPairs = config.filters / 32, kCarried = config.members() * kSector;  // per plane
  static_assert(config.kSlots == 3 && kParts == 4 && kCarried <= 128);
  using S = Sizes<config>;
  const int lane = thread % 32, mine = lane % 4;
  const int at = thread / 32 * 16 + lane / 4;  // my first position of a tile
  const unsigned carry_in = smem + S::kAt.carry + (tile.item + 1) % 2 * config.carry_bytes() + thread * 4;
  const unsigned carry_out =
      smem + S::kAt.carry + tile.item % 2 * config.carry_bytes() + (mine * kSector + at) * 4;
  const bool has_carried = (within || !tile.begins) && thread < kCarried;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int use = tile.item * kParts + part, slot = use % config.kSlots;
    unsigned carried[kPlanesOfSlot];
#pragma unroll
    for (int j = 0; j < kPlanesOfSlot; ++j)
      carried[j] = ptx::ld_shared_if(carry_in + (part * kPlanesOfSlot + j) * kCarried * 4, has_carried);
    ptx::mbarrier_wait(smem + S::kAt.free + 8 * slot, (use / config.kSlots & 1) ^ 1);
#pragma unroll
    for (int j = 0; j < kPlanesOfSlot; ++j) {
      const int number = part * kPlanesOfSlot + j;
      const Run run = run_of<config>(number, tile);
      const unsigned plane = smem + S::kAt.slots + slot * config.slot_bytes() + j * config.plane_bytes();
      ptx::st_shared_if(plane + (thread / kSector * run.length + thread % kSector) * 4, carried[j],
                        has_carried && thread % kSector < run.carried);
      const unsigned inner = plane + (mine * run.length + at + run.carried) * 4;
      const int first = number * kPairs;
      if constexpr (within) {
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair)
          ptx::st_shared_two(inner + pair * 16 * run.length, sums[sum_of(first + pair)],
                             sums[sum_of(first + pair) + 2]);
      } else {
        const unsigned behind = carry_out + (number * kCarried + run.carried - run.length) * 4;
        unsigned to[2], step[2];
        bool real[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int position = at + 8 * half;
          const bool inside = position + run.carried < run.length;
          real[half] = position < tile.positions;
          to[half] = (inside ? inner : behind) + half * 32;
          step[half] = inside ? 16 * run.length : 16 * kSector;
        }
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) {
          ptx::st_shared_two_if(to, sums[sum_of(first + pair)], sums[sum_of(first + pair) + 2], real);
          to[0] += step[0], to[1] += step[1];
        }
      }
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(smem + S::kAt.filled + 8 * slot);
    if (part == kParts / 2 - 1) ptx::mbarrier_arrive(next_turn);
  }
}

}  // namespace convtune::direct_stem_sm90
