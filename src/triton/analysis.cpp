// analyze(): a profile in words and numbers. Every finding either rests on metrics that are there or says
// which are missing; thresholds are those that Nsight Compute's own speed-of-light section uses.
#include "triton/analysis.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/quoted.h"
#include "convtune/error.h"
#include "triton/refine_original.h"
#include "triton/triton_file.h"

namespace convtune {
namespace {

constexpr double kSaturated = 0.8, kBusy = 0.6;                 // of a unit's peak
constexpr double kEnoughOccupancy = 0.5, kFullOccupancy = 0.9;  // of the warps
constexpr double kReadAgain = 1.5;                              // times the bytes that must be moved once
constexpr std::int64_t kLargestTile = 256;

class Analysis {
 public:
  // `file`: null for none.
  Analysis(const KernelMetrics& metrics, const Target& target, const AnalyzeOptions& options,
           TritonFile* file)
      : kernel_(metrics.kernel),
        metrics_(known_metrics(metrics)),
        target_(target),
        options_(options),
        file_(file) {}

  std::vector<Finding> run() {
    config();
    bound();
    occupancy();
    tail();
    cache();
    sectors();
    bank_conflicts();
    parameters();
    return std::move(findings_);
  }

 private:
  void say(const char* what, std::string text) { findings_.push_back({what, std::move(text)}); }
  void missing(const char* what, const char* metrics) {
    say(what, fmt::format("not in the metrics: profile {} too", metrics));
  }

  // Which config of the list was profiled, or which tile, as far as the grid says.
  void config() {
    if (metrics_.block) warps_ = (*metrics_.block + target_.warp_size - 1) / target_.warp_size;
    if (!metrics_.grid) return missing("config", "launch__grid_size");
    if (file_) return listed_config(*file_);
    if (options_.problem) return any_tile(*options_.problem);
    say("config",
        fmt::format("a grid of {} blocks; --problem and --source would say of which tile", *metrics_.grid));
  }

  // What the source says of the config that was profiled. A source that does not hold the kernel, or no list,
  // is said and stops nothing.
  void listed_config(TritonFile& file) {
    const TritonKernel* kernel = nullptr;
    for (const TritonKernel& one : file.kernels())
      if (is_kernel_name(kernel_, one.name)) kernel = &one;
    if (!kernel)
      return say("config",
                 fmt::format("a grid of {} blocks; the source has no kernel {} that it tunes or launches",
                             *metrics_.grid, convtune::quoted(kernel_)));
    loops_ = kernel->loops;
    if (kernel->configs.empty())
      return say("config", fmt::format("a grid of {} blocks; the kernel's configs are not known: {}",
                                       *metrics_.grid, kernel->why));
    std::optional<ConvProblem> problem;
    std::string why;
    std::vector<TritonConfig> found = profiled_configs(
        file, *kernel, *metrics_.grid,
        options_.problem ? std::vector<ConvProblem>{*options_.problem} : file.cases(), {}, problem, why);
    if (found.empty() && kernel->configs.size() == 1) found = kernel->configs;
    if (found.empty()) return say("config", fmt::format("a grid of {} blocks: {}", *metrics_.grid, why));
    std::string tile, which;
    for (const auto& [name, value] : found[0].meta) tile += fmt::format("{}={} ", name, value);
    bool one_tile = true;
    for (const TritonConfig& config : found) one_tile &= config.same_blocks(found[0]);
    for (const TritonConfig& config : found) {
      which += fmt::format("{}{} (line {})", which.empty() ? "" : " or ",
                           one_tile ? to_string(config.stage) : to_string(config), config.line);
      if (!metrics_.block) warps_ = warps_ == 0 || warps_ == config.stage.warps ? config.stage.warps : -1;
      stages_ = config.stage.stages;
    }
    if (kernel->configs.size() == 1)
      return say("config",
                 fmt::format("a grid of {} blocks of the only config: {}{}", *metrics_.grid, tile, which));
    say("config",
        fmt::format(
            "a grid of {} blocks{} is that of {}{}{}", *metrics_.grid,
            problem ? fmt::format(" for {}", problem->name.empty() ? to_string(*problem) : problem->name)
                    : "",
            one_tile ? tile : "", one_tile && !tile.empty() ? "and no other tile of the list: " : "", which));
  }

  // Without a list: the tiles of an implicit matrix product that make such a grid.
  void any_tile(const ConvProblem& problem) {
    const std::int64_t rows = problem.n * problem.p() * problem.q(), columns = problem.k / problem.groups;
    std::string tiles;
    for (std::int64_t m = 1; m <= kLargestTile; m *= 2)
      for (std::int64_t n = 1; n <= kLargestTile; n *= 2) {
        const std::int64_t m_blocks = (rows + m - 1) / m, n_blocks = (columns + n - 1) / n * problem.groups;
        if (n > 1 && n / 2 >= columns) continue;  // a wider tile of the same single column of blocks
        if (m_blocks > 0 && *metrics_.grid % m_blocks == 0 && *metrics_.grid / m_blocks == n_blocks)
          tiles += fmt::format("{}{}x{} (ceil({}/{}) x ceil({}/{}))", tiles.empty() ? "" : " or ", m, n, rows,
                               m, columns, n);
      }
    say("config",
        tiles.empty()
            ? fmt::format("a grid of {} blocks is no tiling of {} output positions by {} channels",
                          *metrics_.grid, rows, columns)
            : fmt::format(
                  "a grid of {} blocks is a tile of {} (positions x channels); --source says which of a list",
                  *metrics_.grid, tiles));
  }

  void bound() {
    if (!metrics_.sm_share || !metrics_.memory_share)
      return missing("bound", "sm__throughput and dram__throughput (.avg.pct_of_peak_sustained_elapsed)");
    const double sm = *metrics_.sm_share, memory = *metrics_.memory_share;
    std::string text = fmt::format(
        "the multiprocessors reach {:.1f} % of their peak, memory {:.1f} % ({:.0f} of {:.6g} GB/s): ",
        100 * sm, 100 * memory, memory * target_.bandwidth_gb_s, target_.bandwidth_gb_s);
    if (std::max(sm, memory) >= kSaturated)
      text += sm >= memory ? "bound by what the multiprocessors do" : "bound by memory";
    else if (std::max(sm, memory) >= kBusy)
      text += sm >= memory
                  ? "the multiprocessors are busy and not saturated, memory is idle enough: instructions "
                    "and their latency are what it waits for, not bandwidth"
                  : "memory is busy and not saturated: bandwidth and latency of memory both count";
    else
      text += "neither is busy: bound by latency";
    if (metrics_.tensor_share)
      text += fmt::format("; the tensor cores are active {:.1f} % of the time", 100 * *metrics_.tensor_share);
    else
      text +=
          "; how much of that the tensor cores are is not in the metrics "
          "(sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active)";
    if (options_.problem) text += roofline(*options_.problem);
    say("bound", text);
    gain(sm, memory);
  }

  // num_warps and num_stages change how well the work overlaps, and neither the bytes nor the operations.
  void gain(double sm, double memory) {
    const double most = std::max(sm, memory);
    if (most <= 0) return;
    std::string text = fmt::format(
        "with {} at {:.1f} % of its peak this stage can gain {:.0f} % at most: the same work at the "
        "peak would take {:.0f} % of the time",
        sm >= memory ? "the multiprocessors" : "memory", 100 * most, 100 * std::max(0.0, 1 - most),
        100 * std::min(1.0, most));
    if (most >= kSaturated) text += "; more needs less work, which is no matter of these two parameters";
    say("ceiling", text);
  }

  std::string roofline(const ConvProblem& problem) const {
    const double rate = problem.precision == Precision::fp32 ? target_.fp32_tflops()
                        : problem.dtype == DType::f32        ? target_.tf32_tflops
                                                             : target_.fp16_tflops;
    const double compute = problem.flops() / (1e6 * rate),
                 memory = problem.bytes() / (1e3 * target_.bandwidth_gb_s);
    std::string text = fmt::format("; the problem's floor on {} is {:.0f} us ({})", target_.name,
                                   std::max(compute, memory), compute > memory ? "compute" : "memory");
    if (metrics_.time_us)
      text += fmt::format(", and it took {:.0f} us: {:.0f} % of the roofline", *metrics_.time_us,
                          100 * std::max(compute, memory) / *metrics_.time_us);
    return text;
  }

  void occupancy() {
    const int most = target_.warps_per_multiprocessor;
    std::string text;
    if (metrics_.achieved_occupancy)
      text = fmt::format("{:.1f} of {} warps were active ({:.2f} %)", *metrics_.achieved_occupancy * most,
                         most, 100 * *metrics_.achieved_occupancy);
    if (metrics_.grid && *metrics_.grid < target_.multiprocessors)
      text += fmt::format("{}a grid of {} blocks leaves {} of {} multiprocessors without anything to do",
                          text.empty() ? "" : "; ", *metrics_.grid, target_.multiprocessors - *metrics_.grid,
                          target_.multiprocessors);
    if (warps_ <= 0) {
      if (text.empty()) return missing("occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active");
      if (metrics_.achieved_occupancy.value_or(0) >= kFullOccupancy)
        return say("occupancy", text + ": nothing limits it to speak of");
      return say("occupancy", text + "; of blocks of how many warps is not known (launch__block_size)");
    }
    const auto [limit, certain] = known_occupancy(warps_, evidence_of(metrics_), target_);
    if (certain) {
      blocks_ = limit.blocks;
      text += fmt::format(
          "{}{} blocks of {} warps fit ({:.1f} %), limited by {}: registers allow {}, shared memory {}, "
          "warps {}, block slots {}",
          text.empty() ? "" : "; ", limit.blocks, warps_, 100 * limit.share, to_string(limit.limiter),
          allowed(limit.by_registers), allowed(limit.by_smem), limit.by_warps, limit.by_slots);
    } else if (metrics_.achieved_occupancy) {
      blocks_ =
          static_cast<int>(std::ceil(*metrics_.achieved_occupancy * most / static_cast<double>(warps_)));
      text += fmt::format(
          ": {} blocks of {} warps a multiprocessor, where {} would fit if warps and block slots alone "
          "counted",
          blocks_, warps_, std::min(limit.by_warps, limit.by_slots));
      if (blocks_ > 0 && blocks_ < std::min(limit.by_warps, limit.by_slots)) text += explanation();
    }
    if (text.empty()) return missing("occupancy", "sm__warps_active.avg.pct_of_peak_sustained_active");
    say("occupancy", text);
  }
  static std::string allowed(int blocks) { return blocks > 1'000'000 ? "any" : fmt::format("{}", blocks); }

  // What would keep it at blocks_, where the metrics do not say what does.
  std::string explanation() const {
    const auto range = [&](int low, int high, int step, auto blocks_of) {
      int first = 0, last = 0;
      for (int value = low; value <= high; value += step)
        if (blocks_of(value) == blocks_) first = first ? first : value, last = value;
      return std::pair(first, last);
    };
    const int threads = static_cast<int>(warps_) * target_.warp_size;
    const auto registers = range(1, target_.registers_per_thread, 1, [&](int value) {
      return convtune::occupancy(target_, {threads, value, 0}).by_registers;
    });
    const auto smem = range(128, static_cast<int>(target_.smem_per_block), 128, [&](int value) {
      return convtune::occupancy(target_, {threads, 0, value}).by_smem;
    });
    std::string text = "; ";
    if (registers.first)
      text += fmt::format("{} to {} registers a thread", registers.first, registers.second);
    if (smem.first)
      text += fmt::format("{}{} to {} bytes of shared memory a block", registers.first ? " or " : "",
                          smem.first, smem.second);
    return text +
           " would explain it, and neither is in the metrics (launch__registers_per_thread, "
           "launch__shared_mem_per_block)";
  }

  void tail() {
    if (!metrics_.grid) return missing("tail", "launch__grid_size");
    if (*metrics_.grid <= target_.multiprocessors)
      return say("tail",
                 fmt::format("less than one wave: {} of {} multiprocessors have a block{}", *metrics_.grid,
                             target_.multiprocessors,
                             *metrics_.grid < target_.multiprocessors
                                 ? "; a smaller tile, or the work split along another axis, would use "
                                   "the others, and neither is this stage's"
                                 : ""));
    if (blocks_ <= 0) return say("tail", "how many blocks run at once is not known");
    const double at_once = static_cast<double>(target_.multiprocessors) * blocks_;
    const double waves = static_cast<double>(*metrics_.grid) / at_once;
    const double last = waves - std::floor(waves);
    const double lost = last > 0 ? (1 - last) / std::ceil(waves) : 0;
    say("tail",
        fmt::format("{:.1f} waves of {} multiprocessors x {} blocks; {}: {}", waves, target_.multiprocessors,
                    blocks_,
                    last > 0 ? fmt::format("the last is {:.0f} % full", 100 * last) : "the last is full",
                    lost < 0.02 ? fmt::format("no tail effect to speak of (at most {:.1f} %)", 100 * lost)
                                : fmt::format("up to {:.1f} % of the time is a tail", 100 * lost)));
  }

  void cache() {
    if (!metrics_.l2_hit_share) return missing("cache", "lts__t_sector_hit_rate.pct");
    std::string text =
        fmt::format("{:.1f} % of the sectors asked of L2 were there", 100 * *metrics_.l2_hit_share);
    const double needed = options_.problem ? options_.problem->bytes() : 0;
    std::optional<double> moved = metrics_.memory_bytes;
    if (!moved && metrics_.memory_share && metrics_.time_us)
      moved = *metrics_.memory_share * target_.bandwidth_gb_s * 1e3 * *metrics_.time_us;
    if (moved && needed > 0)
      text += fmt::format(
          "; memory moved {:.0f} MB, {:.2f} times the {:.0f} MB that must be moved once: {}", *moved / 1e6,
          *moved / needed, needed / 1e6,
          *moved > kReadAgain * needed ? "much is read from memory again" : "next to nothing is read again");
    else if (*metrics_.l2_hit_share > kSaturated)
      text += "; what is asked again is caught on the chip";
    else
      text += fmt::format(
          "; whether the others are read again or are a single pass over the data is not said by that: {}",
          moved ? fmt::format("memory moved {:.0f} MB, to be held against the size of the tensors",
                              *moved / 1e6)
                : "the bytes would say (dram__bytes_read.sum, dram__bytes_write.sum)");
    if (options_.problem) {
      const double input = 4.0 * static_cast<double>(options_.problem->input_elements());
      text += fmt::format("; the input is {:.0f} MB, L2 {:.0f} MB", input / (1 << 20),
                          static_cast<double>(target_.l2_bytes) / (1 << 20));
    }
    say("cache", text);
  }

  void sectors() {
    if (!metrics_.load_sector_share && !metrics_.store_sector_share)
      return missing("sectors",
                     "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct and ..._op_st.pct");
    std::string text;
    const auto add = [&](const std::optional<double>& share, const char* what) {
      if (share)
        text += fmt::format("{}{:.1f} % of the bytes that {} move are wasted", text.empty() ? "" : "; ",
                            std::max(0.0, 100 * (1 - *share)), what);
    };
    add(metrics_.load_sector_share, "loads");
    add(metrics_.store_sector_share, "stores");
    say("sectors", text + "; that is the access pattern's, not the two parameters'");
  }

  void bank_conflicts() {
    if (!metrics_.bank_conflict_share)
      return missing("bank conflicts",
                     "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum and "
                     "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum");
    say("bank conflicts", fmt::format("{:.1f} % of the shared-memory wavefronts are conflicts",
                                      100 * *metrics_.bank_conflict_share));
  }

  void parameters() {
    const double achieved = metrics_.achieved_occupancy.value_or(0);
    if (warps_ > 0 && warps_ * target_.warp_size <= target_.threads_per_block)
      say("num_warps", suggested_warps(warps_, evidence_of(metrics_), target_, {}).why);
    else if (achieved >= kEnoughOccupancy)
      say("num_warps",
          fmt::format("stays: {:.1f} % of the warps were active, which is enough to hide latency",
                      100 * achieved));
    else
      say("num_warps",
          "no change follows: without the block's size it is not known what limits occupancy "
          "(launch__block_size, or --source)");
    say("num_stages",
        loops_ == TritonKernel::Loops::none ? "does nothing: the kernel has no loop that could be pipelined"
        : loops_ == TritonKernel::Loops::unrolled
            ? "does nothing: every loop is a tl.static_range, which Triton unrolls before it pipelines"
        : !file_
            ? "one more or one less may be tried, unless the kernel has no loop; no metric here says which"
            : "one more or one less may be tried; no metric here says which");
  }

  const std::string& kernel_;
  const KnownMetrics metrics_;
  const Target& target_;
  const AnalyzeOptions& options_;
  TritonFile* const file_;
  std::vector<Finding> findings_;
  std::int64_t warps_ = 0, stages_ = 0;  // of the profiled config; 0 or less: not known
  int blocks_ = 0;                       // on a multiprocessor at once; 0: not known
  TritonKernel::Loops loops_ = TritonKernel::Loops::any;
};

}  // namespace

OccupancyEvidence evidence_of(const KnownMetrics& metrics) {
  OccupancyEvidence evidence;
  evidence.achieved = metrics.achieved_occupancy;
  evidence.registers = metrics.registers;
  evidence.smem_bytes = metrics.smem_bytes;
  evidence.by_registers = metrics.by_registers, evidence.by_smem = metrics.by_smem;
  evidence.grid = metrics.grid;
  return evidence;
}

std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options) {
  std::optional<TritonFile> file;
  if (!options.source.empty()) file.emplace(options.source, options.path, target, options.python);
  return Analysis(metrics, target, options, file ? &*file : nullptr).run();
}

std::vector<Finding> analyze(const KernelMetrics& metrics, const Target& target,
                             const AnalyzeOptions& options, TritonFile& file) {
  return Analysis(metrics, target, options, &file).run();
}

}  // namespace convtune
