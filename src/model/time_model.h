// Estimates how long a GPU takes for a kernel, from what the kernel does: a roofline of tiles. Pure
// functions. time_model.cpp says what is counted, and where the rates and each constant come from.
#pragma once

#include <cstdint>
#include <string_view>

#include "convtune/target.h"

namespace convtune {

// Counts the resources of a multiprocessor that a tile takes in one phase (load, multiply, store).
struct Phase {
  double products = 0;      // on tensor cores: an m16n8k8 of TF32, or as many cycles of another precision
  double instructions = 0;  // of warps
  double wavefronts = 0;    // of shared memory: 128 bytes each, more where threads meet at a bank
  double specials = 0;      // instructions of warps for the special-function units, of 4 lanes a scheduler
  double l2_bytes = 0;      // read
  double waits = 0;         // of a whole block for a barrier
};

// Describes a kernel's work: a number of equal tiles, each loaded, multiplied and stored.
struct TileWork {
  double tiles = 0;
  Phase load, multiply, store;
  double input_bytes = 0;      // that memory must read for all tiles together
  double converted_bytes = 0;  // read and written by kernels before and after it, which are `conversions`
  double conversions = 0;
  double stored_bytes = 0;     // per tile, in `pieces` that are contiguous in the output
  double pieces = 0;           // each from one place at one time
  double part_sectors = 0;     // sectors of 32 bytes at their ends, of which they write a part
  double copies = 0;           // asynchronous ones of 4 bytes a thread, by warps
  double in_flight_bytes = 0;  // of a block's loads
  double load_warps = 0;       // that do nothing but load; 0: all warps do everything
  bool clusters = false;       // blocks start in clusters
  bool persistent = false;     // a block takes tile after tile; else a tile is a block
  bool wgmma = false;          // multiplies with wgmma; else with mma.sync
  bool cuda_cores = false;     // multiplies on ordinary units: products are among the instructions
  bool load_beside = false;    // a tile is loaded in parts while others of its parts are multiplied
  bool tma = false;           // copies by TMA, products of operands in shared memory: warps only ask for both
  bool store_beside = false;  // a tile is stored in parts while others of its parts are multiplied
  double stored_beside_cycles = 0;  // else, for so long
};

// Describes the compiled kernel (registers, shared memory) and its launch.
struct BlockShape {
  int threads = 0;
  std::int64_t spill_bytes = 0;  // a thread
  double blocks = 0;             // of the grid
  int resident = 1;              // blocks that a multiprocessor holds at once
};

struct TimeEstimate {
  double us = 0;
  // Names the resource that it waits for most: "memory", "tensor cores", "multiply-adds", "special
  // functions", "issue", "shared memory", "L2", or "latency": blocks that are too few to hide what each waits
  // for.
  std::string_view bound;
};

// Cycles of one of Phase::waits: a barrier, and what the slowest warp then has to catch up.
inline constexpr double kWaitCycles = 150;
// Cycles of one Phase::products on a whole multiprocessor.
double tensor_cycles(const Target& target, bool wgmma);
TimeEstimate estimate_time(const Target& target, const TileWork& work, const BlockShape& block);

}  // namespace convtune
