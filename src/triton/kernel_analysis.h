// One kernel's analysis while it is made: what each finding needs, and what was found so far. analyze() runs
// it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "convtune/refine.h"
#include "profile/known_metrics.h"
#include "triton/triton_file.h"

namespace convtune {

class KernelAnalysis {
 public:
  // `file`: null for none.
  KernelAnalysis(const KernelMetrics& metrics, const Target& target, const AnalyzeOptions& options,
                 TritonFile* file);
  std::vector<Finding> run();

 private:
  struct Ranked {
    Finding finding;
    double stake;  // about the share of the time that it is about
  };
  static constexpr double kFirst = 2, kWhole = 1;
  static constexpr double kSaturated = 0.8;   // per unit's peak
  static constexpr double kManyStalls = 0.2;  // of a warp's cycles, for memory

  void say(const char* what, std::string text, double stake = 0);
  void missing(const char* what, const char* metrics);
  void say_missing();
  // Which config of the list was profiled, or which tile, as far as the grid says.
  void config();
  void bound();
  std::string tensor_cores() const;
  // Caches may be what is busy where memory is not.
  std::string caches(double memory) const;
  // num_warps and num_stages change how well the work overlaps, and neither the bytes nor the operations.
  void gain(double sm, double memory, const char* memory_name, double stake);
  std::string roofline(const ConvProblem& problem) const;
  void stalls();
  void spills();
  void occupancy();
  static std::string counted_blocks(std::int64_t blocks);
  static std::string allowed(int blocks);
  // Values that would keep it at blocks_, among those that the metrics do not have.
  std::string explanation(bool of_registers, bool of_smem) const;
  void tail();
  void cache();
  void sectors();
  void bank_conflicts();
  void parameters();
  // By what warps wait for: a further stage is there to have loads come before they are needed.
  std::string stages() const;

  const std::string& kernel_;
  const std::vector<std::string>& notes_;
  const KnownMetrics metrics_;
  const Target& target_;
  const AnalyzeOptions& options_;
  TritonFile* const file_;
  std::vector<Ranked> findings_;
  std::vector<std::pair<const char*, const char*>> missing_;  // findings, and the metrics that they need
  std::string contradiction_;
  std::int64_t warps_ = 0;  // for the profiled config; 0 or less: not known
  int blocks_ = 0;          // on a multiprocessor at once; 0: not known
  TritonKernel::Loops loops_ = TritonKernel::Loops::any;
};

}  // namespace convtune
