// A tile has three phases, one after the other: it is loaded, multiplied, stored. A phase takes as long as
// its resources do that a multiprocessor has: tensor cores, issue slots, shared memory, the way to L2. They
// overlap, though not well: their times are added as squares; or quite well where warps only ask for copies
// and products (TMA and wgmma from shared memory): added as fourth powers.
//
// A block alone takes `alone` cycles for a tile, in which it keeps the multiprocessor busy for `busy` of them
// and waits the others: for latencies, barriers, its own few warps. Blocks beside each other queue for one
// server: with r of them, each finds there what the others left (mean-value analysis of a closed queueing
// network: Reiser and Lavenberg, Journal of the ACM 27, 1980).
//
// The busiest multiprocessor has ceil(tiles / multiprocessors): whole rounds of as many as it holds, then the
// rest, and that is the tail. Memory serves all at once, and has its own roof.
//
// The constants were fitted on an H100 to 420 candidates of six first layers, and held against 1700 others
// and eleven more; docs/notebook/ has how, how well they order candidates, and how little hangs on most of
// them.
#include "model/time_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "model/capability_facts.h"

namespace convtune {
namespace {

constexpr double kLaunchUs = 3;
// That a grid of clusters of two takes longer: 757 pairs of candidates on an H200 that differ in nothing
// else, of 8 to 200 us, 0.7 to 0.9 us in the median.
constexpr double kClusterUs = 0.8;
// A conversion of layout, of 3 to 134 MB on an H200: 5 us, and 3.7 of 4.8 TB/s.
constexpr double kConversionUs = 5, kConversionReached = 0.77;
constexpr double kBlockCycles = 2000;  // to begin a block: its indices, its first load from memory
// If a block takes tile after tile alone on its multiprocessor, nobody else works there until all its
// stages are under way, and from the last product to the last store. Small 1x1 layers on an H100: 4 us.
constexpr double kFillCycles = 4500;
constexpr double kLoadCycles = 800;   // from a load to its data, under way to memory: Little's law
constexpr double kWarpsIssue = 0.4;   // instructions a cycle of one warp, each waiting for some before it
constexpr double kIssueACycle = 4;    // four schedulers; and a warp of independent multiply-adds fills one
constexpr double kSpecialCycles = 8;  // of a warp's special function on one of four schedulers
constexpr double kTmaPower = 4;
constexpr double kWarpsTensor = 0.5;   // per tensor core that one warp keeps busy: products, then operands
constexpr double kCopyWavefronts = 4;  // an asynchronous copy of 4 bytes a thread, in shared memory and L1
constexpr double kSpillPasses = 2;     // stored and loaded
constexpr double kSmemBytes = 128;     // a wavefront
// The share of its peak that memory reaches: 3.01 of 3.35 TB/s, a copy on an H100.
constexpr double kMemoryReached = 0.9;
// Bytes that memory moves besides: it works in bursts, and a sector written in parts is read first.
constexpr double kPieceBytes = 24, kPartSectorBytes = 40;

double added(double power, std::initializer_list<double> all) {
  double sum = 0;
  for (const double one : all) sum += std::pow(one, power);
  return std::pow(sum, 1 / power);
}

// Cycles for `tiles` at once, on a server that is busy for `busy` of a tile's `alone`.
double together(int tiles, double busy, double alone) {
  const double elsewhere = std::max(alone - busy, 0.0);
  double queue = 0, cycles = alone;
  for (int r = 1; r <= tiles; ++r) {
    const double served = busy * (1 + queue);
    cycles = served + elsewhere;  // for each of r tiles
    queue = r * served / cycles;
  }
  return cycles;
}

}  // namespace

double tensor_cycles(const Target& target, bool wgmma) {
  const double peak = 2048 * target.multiprocessors * target.clock_mhz / (1e6 * target.tf32_tflops);
  return wgmma ? peak : peak / capability_facts(target.capability).mma_sync_share;
}

TimeEstimate estimate_time(const Target& target, const TileWork& work, const BlockShape& block) {
  if (!(work.tiles > 0)) return {kLaunchUs, "latency"};
  const double cycles_a_us = target.clock_mhz, multiprocessors = target.multiprocessors;
  const double product_cycles = tensor_cycles(target, work.wgmma);
  const CapabilityFacts facts = capability_facts(target.capability);
  const double l2 = work.tma ? facts.tma_bytes_per_cycle : facts.l2_bytes_per_cycle;
  const double power = work.tma ? kTmaPower : 2;
  const Phase &load = work.load, &multiply = work.multiply, &store = work.store;

  // The whole tile, if nothing ever waited.
  const double products = multiply.products * product_cycles;
  const double issue = (load.instructions + multiply.instructions + store.instructions) / kIssueACycle;
  const double load_smem = load.wavefronts + kCopyWavefronts * work.copies;
  const double multiply_smem = multiply.wavefronts + kSpillPasses * static_cast<double>(block.spill_bytes) *
                                                         block.threads / kSmemBytes;
  const double smem = load_smem + multiply_smem + store.wavefronts;
  const double read = (load.l2_bytes + multiply.l2_bytes) / l2;
  const double specials =
      kSpecialCycles / kIssueACycle * (load.specials + multiply.specials + store.specials);
  const double busy = added(power, {products, issue, smem, read, specials});

  // One block's phases, with no more warps than it has.
  const double warps = block.threads / static_cast<double>(target.warp_size);
  const double loaders = work.load_warps > 0 ? work.load_warps : warps;
  const double others = std::max(warps - work.load_warps, 1.0);
  const auto issued = [](double instructions, double of_warps, double each) {
    return instructions / std::min(kIssueACycle, of_warps * each);
  };
  const auto special = [&](double all) { return kSpecialCycles * all / std::min(kIssueACycle, others); };
  const double moved = work.stored_bytes + kPieceBytes * work.pieces + kPartSectorBytes * work.part_sectors;
  const double loading =
      added(power, {issued(load.instructions, loaders, kWarpsIssue), load_smem, load.l2_bytes / l2,
                    kLoadCycles * load.l2_bytes / work.in_flight_bytes});
  const double multiplying =
      added(power, {products / std::min(1.0, others / 4 * (work.tma ? 1 : kWarpsTensor)),
                    issued(multiply.instructions, others, work.cuda_cores ? 1 : kWarpsIssue), multiply_smem,
                    multiply.l2_bytes / l2, special(multiply.specials)});
  // Blocks that are alone on their multiprocessors and do nothing else meanwhile store all at the same time.
  const double memory = 1e3 * kMemoryReached * target.bandwidth_gb_s / (multiprocessors * cycles_a_us);
  const bool alone_in_storing =
      work.tma && block.resident <= 1 && !work.store_beside && work.stored_beside_cycles == 0;
  const double way_out = alone_in_storing ? std::min(l2, memory) : l2;
  const double storing = added(power, {issued(store.instructions, others, kWarpsIssue), store.wavefronts,
                                       moved / way_out, special(store.specials)});
  const double waiting = kWaitCycles * (load.waits + multiply.waits + store.waits);
  const auto overlapped = [](double a, double b) { return std::cbrt(std::pow(a, 3) + std::pow(b, 3)); };
  const double loaded = work.load_beside ? overlapped(loading, multiplying) : loading + multiplying;
  const double stored = !work.store_beside ? loaded + std::max(storing - work.stored_beside_cycles, 0.0)
                        : work.load_beside ? overlapped(loaded, storing)
                                           : loading + overlapped(multiplying, storing);
  const double alone = stored + waiting;

  double cycles = 0, hidden = 0;  // `hidden`: if nothing ever waited
  if (work.persistent) {
    const double of_each = std::ceil(work.tiles / std::max(block.blocks, 1.0));
    const int beside = std::max(block.resident, 1);
    cycles = kBlockCycles + kFillCycles + of_each * together(beside, busy, alone);
    hidden = of_each * beside * busy;
  } else {
    const double of_each = std::ceil(work.tiles / multiprocessors);
    const int beside = static_cast<int>(std::clamp(of_each, 1.0, std::max<double>(block.resident, 1)));
    const double rounds = std::floor(of_each / beside);
    const int rest = static_cast<int>(of_each - rounds * beside);
    cycles = rounds * together(beside, busy, kBlockCycles + alone) +
             (rest > 0 ? together(rest, busy, kBlockCycles + alone) : 0);
    hidden = of_each * busy;
  }
  const double us = cycles / cycles_a_us;
  const double memory_us =
      (work.input_bytes + work.tiles * moved) / (1e3 * kMemoryReached * target.bandwidth_gb_s);
  const double conversions_us = kConversionUs * work.conversions +
                                work.converted_bytes / (1e3 * kConversionReached * target.bandwidth_gb_s);

  TimeEstimate estimate;
  estimate.us = kLaunchUs + (work.clusters ? kClusterUs : 0) +
                std::cbrt(std::pow(us, 3) + std::pow(memory_us, 3)) + conversions_us;
  if (memory_us >= us) {
    estimate.bound = "memory";
  } else if (2 * hidden < cycles) {
    estimate.bound = "latency";
  } else {
    const std::array<std::pair<double, std::string_view>, 5> shares = {
        {{products, "tensor cores"},
         {specials, "special functions"},
         {issue, work.cuda_cores ? "multiply-adds" : "issue"},
         {smem, "shared memory"},
         {read, "L2"}}};
    estimate.bound = std::max_element(shares.begin(), shares.end())->second;
  }
  return estimate;
}

}  // namespace convtune
