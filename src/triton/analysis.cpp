// analyze(): a profile in words and numbers. Every finding rests on metrics that are there, and one says
// which are missing; what costs most comes first, what follows for the two parameters last. Thresholds are
// those that Nsight Compute's own speed-of-light section uses.
#include "triton/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "triton/kernel_analysis.h"
#include "triton/profiled_tile.h"
#include "triton/triton_file.h"

namespace convtune {
namespace {

constexpr double kBusy = 0.6;                                   // per unit's peak
constexpr double kEnoughOccupancy = 0.5, kFullOccupancy = 0.9;  // of the warps

double tensor_core_tflops(const Target& target, DType type) {
  switch (type) {
    case DType::f32:
      return target.tf32_tflops;
    case DType::f16:
      return target.fp16_tflops;
    case DType::bf16:
      break;
  }
  return target.bf16_tflops;
}

}  // namespace

KernelAnalysis::KernelAnalysis(const KernelMetrics& metrics, const Target& target,
                               const AnalyzeOptions& options, TritonFile* file)
    : kernel_(metrics.kernel),
      notes_(metrics.notes),
      metrics_(known_metrics(metrics)),
      target_(target),
      options_(options),
      file_(file) {}

std::vector<Finding> KernelAnalysis::run() {
  for (const std::string& note : notes_) say("numbers", note, kFirst);
  config();
  contradiction_ = contradiction(metrics_, warps_, target_);
  if (!contradiction_.empty()) say("readings", contradiction_, kFirst);
  if (metrics_.time_us) say("time", fmt::format("{:.6g} us a launch", *metrics_.time_us));
  bound();
  stalls();
  spills();
  occupancy();
  tail();
  cache();
  sectors();
  bank_conflicts();
  std::stable_sort(findings_.begin(), findings_.end(),
                   [](const Ranked& a, const Ranked& b) { return a.stake > b.stake; });
  parameters();
  say_missing();
  std::vector<Finding> findings;
  for (Ranked& one : findings_) findings.push_back(std::move(one.finding));
  return findings;
}

void KernelAnalysis::say(const char* what, std::string text, double stake) {
  findings_.push_back({{what, std::move(text)}, stake});
}

void KernelAnalysis::missing(const char* what, const char* metrics) {
  missing_.emplace_back(what, metrics);
}

void KernelAnalysis::say_missing() {
  if (missing_.empty()) return;
  std::string what, metrics;
  for (const auto& [one, names] : missing_) {
    what += (what.empty() ? "" : ", ") + std::string(one);
    metrics += (metrics.empty() ? "" : ", ") + std::string(names);
  }
  say("not in the metrics", fmt::format("{}: profile {} too", what, metrics));
}

// Which config of the list was profiled, or which tile, as far as the grid says.
void KernelAnalysis::config() {
  const ProfiledTile tile = profiled_tile(kernel_, metrics_, options_, file_);
  loops_ = tile.loops;
  warps_ = metrics_.block ? (*metrics_.block + target_.warp_size - 1) / target_.warp_size : tile.warps;
  if (tile.text.empty()) return missing("config and tail", "launch__grid_size");
  say("config", tile.text);
}

void KernelAnalysis::bound() {
  if (!metrics_.tensor_share)
    missing("tensor cores", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active");
  const auto& any_memory = metrics_.memory_share ? metrics_.memory_share : metrics_.busiest_memory_share;
  if (!metrics_.sm_share || !any_memory) {
    missing("bound", metrics_.sm_share ? "dram__throughput.avg.pct_of_peak_sustained_elapsed"
                     : any_memory
                         ? "sm__throughput.avg.pct_of_peak_sustained_elapsed"
                         : "sm__throughput and dram__throughput (.avg.pct_of_peak_sustained_elapsed)");
    if (metrics_.sm_share)
      say("bound", fmt::format("the multiprocessors reach {:.1f} % of their peak", 100 * *metrics_.sm_share));
    if (any_memory) say("bound", fmt::format("memory and its caches reach {:.1f} %", 100 * *any_memory));
    if (metrics_.tensor_share) say("bound", tensor_cores());
    return;
  }
  const bool of_dram = metrics_.memory_share.has_value();
  const double sm = *metrics_.sm_share, memory = *any_memory;
  const char* const name = of_dram ? "memory" : "the busiest of L1, L2 and memory";
  std::string text = fmt::format("the multiprocessors reach {:.1f} % of their peak, {} {:.1f} %", 100 * sm,
                                 name, 100 * memory);
  if (of_dram)
    text += fmt::format(" ({:.0f} of {:.6g} GB/s)", memory * target_.bandwidth_gb_s, target_.bandwidth_gb_s);
  if (std::max(sm, memory) >= kSaturated)
    text += sm >= memory ? ": bound by what the multiprocessors do" : fmt::format(": bound by {}", name);
  else if (std::min(sm, memory) >= kBusy)
    text += ": both are busy and neither is saturated: latency and bandwidth both count";
  else if (std::max(sm, memory) >= kBusy)
    text += sm >= memory
                ? ": the multiprocessors are busy and not saturated, memory is idle enough: instructions "
                  "and their latency are what it waits for, not bandwidth"
                : fmt::format(": {} is busy and not saturated: its bandwidth and latency both count", name);
  else
    text += ": neither is busy: bound by latency";
  if (of_dram) text += caches(memory);
  if (metrics_.tensor_share) text += "; " + tensor_cores();
  if (options_.problem) text += roofline(*options_.problem);
  const double stake = std::max(sm, memory) >= kSaturated ? kWhole : 0.15;
  say("bound", text, stake);
  gain(sm, memory, of_dram ? "memory" : "the busiest of L1, L2 and memory", stake);
}

std::string KernelAnalysis::tensor_cores() const {
  return fmt::format("the tensor cores are active {:.1f} % of the time", 100 * *metrics_.tensor_share);
}

// Caches may be what is busy where memory is not.
std::string KernelAnalysis::caches(double memory) const {
  const double busiest = metrics_.busiest_memory_share.value_or(0);
  if (busiest < kBusy || busiest < memory + 0.1) return {};
  const double l1 = metrics_.l1_share.value_or(0), l2 = metrics_.l2_share.value_or(0);
  return fmt::format("; of the ways to data {} is the busy one ({:.1f} %), not memory",
                     l1 == l2  ? "a cache or shared memory"
                     : l1 > l2 ? "that through L1 and shared memory"
                               : "that through L2",
                     100 * busiest);
}

// num_warps and num_stages change how well the work overlaps, and neither the bytes nor the operations.
void KernelAnalysis::gain(double sm, double memory, const char* memory_name, double stake) {
  const double most = std::max(sm, memory);
  if (most <= 0) return;
  std::string text = fmt::format(
      "with {} at {:.1f} % of the peak this stage can gain {:.0f} % at most: the same work at the "
      "peak would take {:.0f} % of the time",
      sm >= memory ? "the multiprocessors" : memory_name, 100 * most, 100 * std::max(0.0, 1 - most),
      100 * std::min(1.0, most));
  if (most >= kSaturated) text += "; more needs less work, which is no matter of these two parameters";
  say("ceiling", text, stake);
}

std::string KernelAnalysis::roofline(const ConvProblem& problem) const {
  const double rate = problem.precision == Precision::fp32 ? target_.fp32_tflops()
                                                           : tensor_core_tflops(target_, problem.dtype.x);
  const double compute = problem.flops() / (1e6 * rate),
               memory = problem.bytes() / (1e3 * target_.bandwidth_gb_s);
  std::string text = fmt::format("; the problem's floor on {} is {:.0f} us ({})", target_.name,
                                 std::max(compute, memory), compute > memory ? "compute" : "memory");
  if (metrics_.time_us)
    text += fmt::format(", and it took {:.0f} us: {:.0f} % of the roofline", *metrics_.time_us,
                        100 * std::max(compute, memory) / *metrics_.time_us);
  return text;
}

void KernelAnalysis::occupancy() {
  const int most = target_.warps_per_multiprocessor;
  const auto& achieved = metrics_.achieved_occupancy;
  std::string text;
  if (achieved)
    text = fmt::format("{:.1f} of {} warps were active ({:.2f} %)", *achieved * most, most, 100 * *achieved);
  const double stake = achieved && *achieved < kEnoughOccupancy ? 0.2 : 0;
  if (warps_ <= 0) {
    if (metrics_.theoretical_occupancy)
      text += fmt::format("{}{:.2f} % of the warps fit", text.empty() ? "" : "; ",
                          100 * *metrics_.theoretical_occupancy);
    if (metrics_.registers)
      text += fmt::format("{}{} registers a thread", text.empty() ? "" : "; ", *metrics_.registers);
    if (text.empty()) return missing("occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active");
    if (achieved.value_or(0) >= kFullOccupancy)
      return say("occupancy", text + ": nothing limits it to speak of");
    return say("occupancy", text + "; of blocks of how many warps is not known (launch__block_size)", stake);
  }
  const auto [limit, certain] = known_occupancy(warps_, evidence_of(metrics_), target_);
  const bool registers = metrics_.registers || metrics_.by_registers,
             smem = metrics_.smem_bytes || metrics_.by_smem;
  const int measured =
      achieved ? static_cast<int>(std::ceil(*achieved * most / static_cast<double>(warps_) - 0.05)) : 0;
  const std::string begin = text.empty() ? "" : text + "; ";
  if (certain || ((registers || smem) && (limit.share < kEnoughOccupancy || measured >= limit.blocks))) {
    blocks_ = limit.blocks;
    text = fmt::format(
        "{}{} of {} warps {} ({:.1f} %), limited by {}{}: registers allow {}, shared memory {}, "
        "warps {}, block slots {}",
        begin, counted_blocks(limit.blocks), warps_, limit.blocks == 1 ? "fits" : "fit", 100 * limit.share,
        to_string(limit.limiter), certain ? "" : " as far as is known",
        registers ? allowed(limit.by_registers) : "what is not known",
        smem ? allowed(limit.by_smem) : "what is not known", limit.by_warps, limit.by_slots);
  } else if (achieved) {
    blocks_ = measured;
    text += fmt::format(": {} of {} warps a multiprocessor, where {} would fit if {} alone counted",
                        counted_blocks(blocks_), warps_, limit.blocks,
                        registers ? "registers, warps and block slots"
                        : smem    ? "shared memory, warps and block slots"
                                  : "warps and block slots");
    if (blocks_ > 0 && blocks_ < limit.blocks) text += explanation(!registers, !smem);
  }
  if (text.empty()) return missing("occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active");
  const std::int64_t all = target_.multiprocessors, share = (metrics_.grid.value_or(0) + all - 1) / all;
  if (share > 0 && share < blocks_)
    text += fmt::format("; the grid has no more than {} for each multiprocessor", counted_blocks(share));
  say("occupancy", text, stake);
}

std::string KernelAnalysis::counted_blocks(std::int64_t blocks) {
  return fmt::format("{} {}", blocks, blocks == 1 ? "block" : "blocks");
}

std::string KernelAnalysis::allowed(int blocks) {
  return blocks > 1'000'000 ? "any" : fmt::format("{}", blocks);
}

// Values that would keep it at blocks_, among those that the metrics do not have.
std::string KernelAnalysis::explanation(bool of_registers, bool of_smem) const {
  const auto range = [&](int low, int high, int step, auto blocks_of) {
    int first = 0, last = 0;
    for (int value = low; value <= high; value += step)
      if (blocks_of(value) == blocks_) first = first ? first : value, last = value;
    return std::pair(first, last);
  };
  const int threads = static_cast<int>(warps_) * target_.warp_size;
  std::string causes, metrics;
  const auto add = [&](const std::string& cause, const char* metric) {
    causes += (causes.empty() ? "" : " or ") + cause;
    metrics += (metrics.empty() ? "" : ", ") + std::string(metric);
  };
  if (of_registers)
    if (const auto [first, last] =
            range(1, target_.registers_per_thread, 1,
                  [&](int value) {
                    return convtune::occupancy(target_, {threads, value, 0}).by_registers;
                  });
        first)
      add(fmt::format("{} to {} registers a thread", first, last), "launch__registers_per_thread");
  if (of_smem)
    if (const auto [first, last] = range(128, static_cast<int>(target_.smem_per_block), 128,
                                         [&](int value) {
                                           return convtune::occupancy(target_, {threads, 0, value}).by_smem;
                                         });
        first)
      add(fmt::format("{} to {} bytes of shared memory a block", first, last),
          "launch__shared_mem_per_block");
  return causes.empty() ? std::string()
                        : fmt::format("; {} would explain it (not in the metrics: {})", causes, metrics);
}

void KernelAnalysis::tail() {
  if (!metrics_.grid) return;  // config() says so
  const int all = target_.multiprocessors;
  const std::int64_t idle = all - *metrics_.grid;
  if (idle > 0)
    return say(
        "tail",
        fmt::format("less than one wave: {} of {} multiprocessors have nothing to do; a smaller tile, or "
                    "the work split along another axis, would use them, and neither is this stage's",
                    idle, all),
        static_cast<double>(idle) / all);
  if (blocks_ <= 0 || !contradiction_.empty()) return;
  const double at_once = static_cast<double>(all) * blocks_;
  const double waves = static_cast<double>(*metrics_.grid) / at_once;
  if (waves < 1)
    return say("tail",
               fmt::format("less than one wave: a grid of {} blocks, where {} multiprocessors have room "
                           "for {:.0f}",
                           *metrics_.grid, all, at_once));
  const double last = waves - std::floor(waves);
  const double lost = last > 0 ? (1 - last) / std::ceil(waves) : 0;
  say("tail",
      fmt::format("{:.1f} waves of {} multiprocessors x {}; {}: {}", waves, all, counted_blocks(blocks_),
                  last > 0 ? fmt::format("the last is {:.0f} % full", 100 * last) : "the last is full",
                  lost < 0.02 ? fmt::format("no tail effect to speak of (at most {:.1f} %)", 100 * lost)
                              : fmt::format("up to {:.1f} % of the time is a tail", 100 * lost)),
      lost);
}

void KernelAnalysis::parameters() {
  const double achieved = metrics_.achieved_occupancy.value_or(0);
  if (!contradiction_.empty())
    say("num_warps", "no change follows from readings that contradict each other");
  else if (warps_ > 0 && warps_ * target_.warp_size <= target_.threads_per_block)
    say("num_warps", suggested_warps(warps_, evidence_of(metrics_), target_, {}).why);
  else if (achieved >= kEnoughOccupancy)
    say("num_warps", fmt::format("stays: {:.1f} % of the warps were active, which is enough to hide latency",
                                 100 * achieved));
  else
    say("num_warps",
        "no change follows: without the block's size it is not known what limits occupancy "
        "(launch__block_size, or --source)");
  say("num_stages",
      loops_ == TritonKernel::Loops::none ? "does nothing: the kernel has no loop that could be pipelined"
      : loops_ == TritonKernel::Loops::unrolled
          ? "does nothing: every loop is a tl.static_range, which Triton unrolls before it pipelines"
          : stages());
}

// By what warps wait for: a further stage is there to have loads come before they are needed.
std::string KernelAnalysis::stages() const {
  const char* const unless = file_ ? "" : ", unless the kernel has no loop";
  if (!metrics_.memory_stall_share)
    return fmt::format("one more or one less may be tried{}; stalls would say which", unless);
  const double share = 100 * *metrics_.memory_stall_share;
  if (*metrics_.memory_stall_share >= kManyStalls)
    return fmt::format(
        "one more may help{}: {:.1f} % of a warp's cycles wait for data from memory, which a further stage "
        "asks for earlier",
        unless, share);
  if (target_.capability.major >= 9)
    return fmt::format(
        "one more or one less may be tried{}: {:.1f} % of a warp's cycles wait for data from memory, but "
        "what TMA "
        "brings is waited for at barriers, which that does not count",
        unless, share);
  return fmt::format(
      "one more cannot help much: only {:.1f} % of a warp's cycles wait for data from memory; one less may "
      "be tried{}, and leaves shared memory to other blocks",
      share, unless);
}

std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options) {
  std::optional<TritonFile> file;
  if (!options.source.empty()) file.emplace(options.source, options.path, target, options.python);
  return KernelAnalysis(metrics, target, options, file ? &*file : nullptr).run();
}

std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options, TritonFile& file) {
  return KernelAnalysis(metrics, target, options, &file).run();
}

}  // namespace convtune
