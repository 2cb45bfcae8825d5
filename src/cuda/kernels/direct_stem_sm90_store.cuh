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

#include "direct_stem_sm90_load.cuh"

namespace convtune {

// y as [n][k / 8][8 * p * q], in boxes of a plane's runs: short ones, those a sector longer, those of whole
// tiles.
struct DirectStemSm90Maps {
  ptx::TensorMap y[3];
};

namespace stem {

// What is known of a tile when it is stored.
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
          rows.row(i) * config.q + tile * DirectStemSm90::kTile,
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
      static_cast<int>(static_cast<long long>(config.p) * config.q % DirectStemSm90::kSector);
  const unsigned carried = static_cast<unsigned>(plane * kApart + tile.first) % kSector;
  return {static_cast<int>(carried),
          static_cast<int>((carried + static_cast<unsigned>(tile.positions)) / kSector * kSector)};
}

// One warp, of which one lane acts unless y is stored without boxes.
template <DirectStemSm90 config>
__device__ void store(const ptx::TensorMap* maps, float* __restrict__ y, const Smem<config>& smem, int lane,
                      bool in_boxes) {
  constexpr int kPlanes = DirectStemSm90::kPlanes, kPlanesOfSlot = DirectStemSm90::kPlanesOfSlot;
  constexpr int kImage = config.p * config.q;
  const Rows<config> rows;
  const bool acts = lane == 0;
  const int first_member = static_cast<int>(blockIdx.y) * config.members();
  int slot = 0, phase = 0, before = config.kSlots - 1;  // `before`: the slot before
  for (int i = 0; i < rows.count; ++i)
    for (int t = 0; t < config.tiles(); ++t) {
      const Tile tile = tile_of<config>(rows, i, t);
#pragma unroll
      for (int part = 0; part < kPlanes; part += kPlanesOfSlot) {
        const unsigned from = smem.slots + slot * config.slot_bytes();
        ptx::mbarrier_wait(smem.filled + 8 * slot, phase);
#pragma unroll
        for (int j = 0; j < kPlanesOfSlot; ++j) {
          const Run run = run_of<config>(part + j, tile);
          const bool stored = tile.begins && run.carried > 0;  // by the consumers
          const unsigned plane = from + j * config.plane_bytes();
          if (in_boxes) {
            const int map = t < config.tiles() - 1 ? 2 : run.length > config.short_run();
            ptx::store_box_if(maps + map, (part + j) * kImage + tile.first - run.carried, first_member,
                              tile.image, plane, acts && !stored);
          } else if (!stored) {
#pragma unroll 1
            for (int e = lane; e < config.members() * run.length; e += 32) {
              const int filter = kPlanes * (first_member + e / run.length) + part + j;
              if (filter < config.k)
                y[(static_cast<long long>(tile.image) * config.k + filter) * kImage + tile.first -
                  run.carried + e % run.length] = __uint_as_float(load_shared(plane + e * 4));
            }
          }
        }
        ptx::bulk_commit_group();
        ptx::bulk_wait_read_but<1>();
        ptx::mbarrier_arrive_if(smem.free + 8 * before, (acts || !in_boxes) && tile.item + part > 0);
        before = slot;
        if (++slot == config.kSlots) slot = 0, phase ^= 1;
      }
    }
  ptx::bulk_wait();
}

__device__ inline void store_shared_if(unsigned address, unsigned value, bool stores) {
  asm volatile(
      "{\n"
      ".reg .pred stores;\n"
      "setp.ne.b32 stores, %2, 0;\n"
      "@stores st.shared.b32 [%0], %1;\n"
      "}" ::"r"(address),
      "r"(value), "r"(static_cast<unsigned>(stores))
      : "memory");
}

// Where the positions of a warp lie: all within their runs; or some behind; or some in a sector's part that
// is stored from here.
enum class Where { within, behind, anywhere };

// A consumer's part of a tile into the slots. The next consumer may begin when `next_turn` is told, after
// half of the planes. This is why no phase is mistaken and no carried value lost: what it uses then was freed
// after the slots of this half were filled, and it comes to the second half by slots that this one has filled
// by then.
template <DirectStemSm90 config, Where where>
__device__ __forceinline__ void stage(const float (&sums)[config.sums()],
                                      const float (&bias)[config.filters / 4], float* __restrict__ y,
                                      const Smem<config>& smem, const Tile& tile, unsigned next_turn,
                                      int thread) {
  constexpr int kPlanes = DirectStemSm90::kPlanes, kSector = DirectStemSm90::kSector;
  constexpr int kPlanesOfSlot = DirectStemSm90::kPlanesOfSlot, kParts = kPlanes / kPlanesOfSlot;
  constexpr int kPairs = config.filters / 32, kCarried = config.members() * kSector;  // of a plane
  static_assert(config.kSlots == 3 && kParts == 4 && kCarried <= 128);
  const int lane = thread % 32, mine = lane % 4;
  const int at = thread / 32 * 16 + lane / 4;  // my first position of a tile
  const unsigned carry_in = smem.carry + (tile.item + 1) % 2 * config.carry_bytes() + thread * 4;
  const unsigned carry_out = smem.carry + tile.item % 2 * config.carry_bytes() + (mine * kSector + at) * 4;
  for_constants<0, kParts>([&](auto part) {
    const int use = tile.item * kParts + part.value, slot = use % config.kSlots;
    unsigned carried[kPlanesOfSlot];
    if (!tile.begins && thread < kCarried)
#pragma unroll
      for (int j = 0; j < kPlanesOfSlot; ++j)
        carried[j] = load_shared(carry_in + (part.value * kPlanesOfSlot + j) * kCarried * 4);
    ptx::mbarrier_wait(smem.free + 8 * slot, (use / config.kSlots & 1) ^ 1);
    for_constants<0, kPlanesOfSlot>([&](auto of_slot) {
      constexpr int kPlane = decltype(part)::value * kPlanesOfSlot + decltype(of_slot)::value;
      const Run run = run_of<config>(kPlane, tile);
      const unsigned plane = smem.slots + slot * config.slot_bytes() + of_slot.value * config.plane_bytes();
      if (!tile.begins && thread < kCarried)
        store_shared_if(plane + (thread / kSector * run.length + thread % kSector) * 4,
                        carried[of_slot.value], thread % kSector < run.carried);
      const auto value = [&](int pair, int half) {
        constexpr int kFirst = kPlane * kPairs;
        const float sum =
            sums[(kFirst + pair) / 2 * 4 + half * 2 + (kFirst + pair) % 2] + bias[kFirst + pair];
        return config.relu && sum < 0 ? 0.0f : sum;  // NaN stays
      };
      const unsigned within = plane + (mine * run.length + at + run.carried) * 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if constexpr (where == Where::within) {
#pragma unroll
          for (int pair = 0; pair < kPairs; ++pair)
            store_shared(within + pair * 16 * run.length + half * 32, __float_as_uint(value(pair, half)));
        } else {
          const int position = at + 8 * half;
          const bool inside = position + run.carried < run.length, real = position < tile.positions;
          const bool here = where == Where::anywhere && (inside ? tile.begins && run.carried > 0 : tile.ends);
          const unsigned behind = carry_out + (kPlane * kCarried + run.carried - run.length) * 4;
          const unsigned to = (inside ? within : behind) + half * 32;
          const unsigned step = inside ? 16 * run.length : 16 * kSector;
#pragma unroll
          for (int pair = 0; pair < kPairs; ++pair)
            store_shared_if(to + pair * step, __float_as_uint(value(pair, half)), real && !here);
          if (here && real)
#pragma unroll
            for (int pair = 0; pair < kPairs; ++pair) {
              const int filter = static_cast<int>(blockIdx.y) * config.filters +
                                 config.filter_of(kPlane * kPairs + pair, 0) + kPlanes * mine;
              if (filter < config.k)
                y[(static_cast<long long>(tile.image) * config.k + filter) * (config.p * config.q) +
                  tile.first + position] = value(pair, half);
            }
        }
      }
    });
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(smem.filled + 8 * slot);
    if constexpr (decltype(part)::value == kParts / 2 - 1) ptx::mbarrier_arrive(next_turn);
  });
}

}  // namespace stem
}  // namespace convtune
