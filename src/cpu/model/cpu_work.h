// The work of a config on a CPU, as data, and the one model that makes time of it.
//
// An algorithm says how often it does each of the things that the table of costs has a row for
// (cpu_costs.h); of things that a core does at the same time, the slowest counts. The grid of its tasks says
// how much of all work the busiest thread has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "convtune/device.h"
#include "cpu/base/caches.h"
#include "cpu/model/cpu_costs.h"
#include "cpu/model/task_grid.h"

namespace convtune::cpu {

// A CPU as estimates see it.
struct CpuTarget {
  explicit CpuTarget(const DeviceInfo& info)
      : threads(info.units),
        l1_bytes(static_cast<double>(l1_bytes_of(info))),
        l2_bytes(static_cast<double>(l2_bytes_of(info))),
        l3_bytes(static_cast<double>(info.l3_bytes)) {}

  std::int64_t threads;
  double l1_bytes, l2_bytes, l3_bytes;  // a core's first two caches, and the one that cores share
};

// A row of the table, times a count.
struct CpuTerm {
  double CpuCosts::*cost = nullptr;
  double times = 0;
};

class CpuWork {
 public:
  void add(double CpuCosts::*cost, double times) {
    for (std::size_t i = 0; i < terms_; ++i)
      if (all_terms_[i].cost == cost) {
        all_terms_[i].times += times;
        return;
      }
    all_terms_.at(terms_++) = {cost, times};
  }
  // `times` the slowest of sums of terms that a core works at side by side.
  using Side = std::array<CpuTerm, 3>;
  void add_slowest(double times, const Side& a, const Side& b, const Side& c = {}) {
    all_slowest_.at(slowest_++) = {times, {a, b, c}};
  }
  // Steps of a register tile: its multiply-adds beside its loads, no faster than `chain` multiply-adds that
  // wait for each other.
  void add_steps(double times, double multiply_adds, double loads, double chain = 1) {
    add_slowest(times, {CpuTerm{&CpuCosts::multiply_add, multiply_adds}}, {CpuTerm{&CpuCosts::load, loads}},
                {CpuTerm{&CpuCosts::latency, chain}});
  }
  // Multiplies all work, added before and after.
  void repeat(double times) { repeats_ *= times; }
  void share(const TaskGrid& grid) { grid_ = grid; }

  // Core cycles of all tasks together, or of tasks shared out among so many threads, the idle ones counted.
  double cycles(const CpuCosts& costs) const {
    const auto sum = [&](const auto& terms, std::size_t count) {
      double cycles = 0;
      for (std::size_t i = 0; i < count; ++i)
        if (terms[i].cost != nullptr) cycles += terms[i].times * costs.*terms[i].cost;
      return cycles;
    };
    double cycles = sum(all_terms_, terms_);
    for (std::size_t i = 0; i < slowest_; ++i) {
      double most = 0;
      for (const Side& side : all_slowest_[i].sides) most = std::max(most, sum(side, side.size()));
      cycles += all_slowest_[i].times * most;
    }
    return repeats_ * cycles;
  }
  const TaskGrid& grid() const { return grid_; }

 private:
  static constexpr std::size_t kMostTerms = 24, kMostSlowest = 8;  // enough for every algorithm
  struct Slowest {
    double times;
    std::array<Side, 3> sides;
  };

  std::array<CpuTerm, kMostTerms> all_terms_;
  std::array<Slowest, kMostSlowest> all_slowest_;
  std::size_t terms_ = 0, slowest_ = 0;
  double repeats_ = 1;
  TaskGrid grid_;
};

// An estimate of a config's time: core cycles over all threads, of which the busiest ends last. Only ratios
// count: the tuner measures.
inline double estimate_time(const CpuTarget& target, const CpuWork& work) {
  return work.cycles(cpu_costs()) * work.grid().longest_share(target.threads);
}

}  // namespace convtune::cpu
