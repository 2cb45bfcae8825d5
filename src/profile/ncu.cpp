// See ncu.h. The table is CSV with every field in quotes: a line of names, a line of units, a line a launch.
#include "profile/ncu.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/process.h"
#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

constexpr const char* kTime = "gpu__time_duration.sum";
constexpr std::string_view kLoadShare = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct";
constexpr std::string_view kStoreShare = "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct";
constexpr std::array<std::string_view, 19> kMetrics = {
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "launch__grid_size",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct",
    kTime,
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    kLoadShare,
    kStoreShare,
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum"};

Error bad(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "ncu's table: " + why);
}

using Fields = std::vector<std::string>;

// "a","b ""c""": all of a line.
Fields fields_of(std::string_view line) {
  const auto refuse = [&] { throw bad("this is no line of quoted fields: " + convtune::quoted(line)); };
  Fields fields;
  for (std::size_t i = 0;; ++i) {
    if (i >= line.size() || line[i] != '"') refuse();
    std::string field;
    for (++i; i < line.size() && (line[i] != '"' || line.substr(i, 2) == "\"\""); ++i) {
      if (line[i] == '"') ++i;
      field += line[i];
    }
    fields.push_back(std::move(field));
    if (++i == line.size()) return fields;  // behind the last quote
    if (i > line.size() || line[i] != ',') refuse();
  }
}

// "48,400.5"; nothing for what ncu writes where it has no number.
std::optional<double> number(const std::string& text, const std::string& where) {
  if (text.empty() || text == "n/a" || text == "nan" || text == "-nan" || text == "inf") return std::nullopt;
  std::string digits;
  const std::size_t point = std::min(text.find('.'), text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool separates = text[i] == ',' && i > 0 && i < point && (point - i) % 4 == 0;
    if (!separates) digits += text[i];
  }
  double value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [rest, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || rest != end || !std::isfinite(value))
    throw bad(fmt::format("{} is {}, and must be a number", where, convtune::quoted(text)));
  return value;
}

// What a number in this unit is multiplied with: times become nanoseconds and sizes bytes.
double scale_of(const std::string& unit, const std::string& metric) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1},
                                                            {"%", 1},
                                                            {"block", 1},
                                                            {"thread", 1},
                                                            {"register/thread", 1},
                                                            {"byte/block", 1},
                                                            {"byte", 1},
                                                            {"Kbyte", 1e3},
                                                            {"Mbyte", 1e6},
                                                            {"Gbyte", 1e9},
                                                            {"Kbyte/block", 1e3},
                                                            {"ns", 1},
                                                            {"us", 1e3},
                                                            {"ms", 1e6},
                                                            {"s", 1e9},
                                                            {"nsecond", 1},
                                                            {"usecond", 1e3},
                                                            {"msecond", 1e6},
                                                            {"second", 1e9}};
  for (const auto& [known, scale] : kUnits)
    if (known == unit) return scale;
  throw bad(fmt::format("{} is in {}, a unit that is not known", metric, convtune::quoted(unit)));
}

class TableReader {
 public:
  void line(std::string_view text, std::vector<KernelMetrics>& launches) {
    Fields fields = fields_of(text);
    if (names_.empty()) {
      names_ = std::move(fields);
      const auto kernel = column("Kernel Name");
      if (!kernel) throw bad("it has no column \"Kernel Name\"");
      kernel_ = *kernel;
      metric_ = column("Metric Name"), unit_ = column("Metric Unit"), value_ = column("Metric Value");
      return;
    }
    if (fields.size() != names_.size())
      throw bad(fmt::format("a line has {} fields, and the first has {}: {}", fields.size(), names_.size(),
                            convtune::quoted(text)));
    if (metric_ && unit_ && value_) return metric_line(fields, launches);
    if (units_.empty()) {
      if (!fields[0].empty()) throw bad("its second line must be that of the units");
      units_ = std::move(fields);
      return;
    }
    KernelMetrics launch{fields[kernel_], {}};
    if (launch.kernel.empty()) throw bad("a launch has no kernel's name");
    for (const std::string_view metric : kMetrics)
      if (const auto at = column(metric)) add(metric, fields[*at], units_[*at], launch);
    launches.push_back(std::move(launch));
  }
  bool began() const { return !names_.empty(); }

 private:
  std::optional<std::size_t> column(std::string_view name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    return found == names_.end() ? std::nullopt
                                 : std::optional(static_cast<std::size_t>(found - names_.begin()));
  }

  // The table's other form, `ncu --csv` without `--page raw`: a line a metric.
  void metric_line(const Fields& fields, std::vector<KernelMetrics>& launches) {
    if (fields[kernel_].empty()) throw bad("a launch has no kernel's name");
    if (launches.empty() || fields[0] != launch_ || launches.back().kernel != fields[kernel_])
      launches.push_back({fields[kernel_], {}}), launch_ = fields[0];
    const std::string& metric = fields[*metric_];
    if (std::find(kMetrics.begin(), kMetrics.end(), metric) != kMetrics.end() &&
        !launches.back().find(metric))
      add(metric, fields[*value_], fields[*unit_], launches.back());
  }

  static void add(std::string_view metric, const std::string& text, const std::string& unit,
                  KernelMetrics& launch) {
    const auto value = number(text, fmt::format("{} of kernel {}", metric, convtune::quoted(launch.kernel)));
    if (!value) return;
    // No access of the kind moves no sector at all, and wastes none.
    if (*value == 0 && (metric == kLoadShare || metric == kStoreShare)) return;
    launch.values.emplace_back(metric, *value * scale_of(unit, std::string(metric)));
  }

  Fields names_, units_;
  std::size_t kernel_ = 0;
  std::optional<std::size_t> metric_, unit_, value_;  // of the form of a line a metric
  std::string launch_;                                // its number, as the last line has it
};

}  // namespace

std::string find_ncu() {
  std::vector<std::string> folders;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* const folder = std::getenv(variable); folder && *folder)
      folders.push_back(std::string(folder) + "/bin");
  folders.emplace_back("/usr/local/cuda/bin");
  std::string file = find_program("ncu", folders);
  if (file.empty())
    throw Error(
        ErrorKind::unsupported,
        "Nsight Compute's ncu is not on PATH, in $CUDA_HOME/bin or in /usr/local/cuda/bin; it comes with "
        "NVIDIA's CUDA toolkit (without it, analyze and refine take metrics that were measured elsewhere)");
  return file;
}

std::vector<std::string> ncu_command(const std::string& ncu, const std::vector<std::string>& command) {
  // The clocks are left as they are: times are those of ordinary runs, and nothing has to be set back.
  std::vector<std::string> words = {
      ncu,        "--csv",           "--page", "raw",      "--print-units", "base", "--print-kernel-base",
      "function", "--clock-control", "none",   "--metrics"};
  std::string metrics;
  for (const std::string_view metric : kMetrics)
    metrics += fmt::format("{}{}", metrics.empty() ? "" : ",", metric);
  words.push_back(metrics);
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

NcuAnswer parse_ncu(std::string_view output) {
  NcuAnswer answer;
  answer.forbidden = output.find("ERR_NVGPUCTRPERM") != output.npos;
  TableReader table;
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("==")) {  // "==ERROR== text", "==PROF== Connected to process 7"
      const std::size_t word = line.find("== ", 2);
      if (word != line.npos && (line.starts_with("==ERROR==") || line.starts_with("==WARNING==")))
        answer.messages.push_back(fmt::format("{}: {}", line.substr(2, word - 2), line.substr(word + 3)));
    } else if (table.began() || line.starts_with("\"ID\",")) {
      if (!line.empty()) table.line(line, answer.launches);
    } else if (!line.empty()) {
      answer.others.emplace_back(line);
    }
  }
  return answer;
}

const KernelMetrics& launch_of(const std::string& algorithm, const std::vector<KernelMetrics>& launches,
                               std::string& note) {
  const auto time = [](const KernelMetrics& launch) { return launch.find(kTime).value_or(0); };
  std::vector<const KernelMetrics*> own;
  const auto choose = [&](const std::string& kernel) {
    for (const KernelMetrics& launch : launches)
      if (launch.kernel == kernel) own.push_back(&launch);
  };
  choose(algorithm);
  if (own.empty()) {
    const KernelMetrics* longest = nullptr;
    for (const KernelMetrics& launch : launches)
      if (launch.kernel.find("pack") == launch.kernel.npos && (!longest || time(launch) > time(*longest)))
        longest = &launch;
    if (!longest) throw Error(ErrorKind::invalid_argument, "ncu measured no kernel of " + algorithm);
    choose(longest->kernel);
    note = fmt::format("{} has no kernel of its own name: of {} launches the longest is that of {}",
                       algorithm, launches.size(), convtune::quoted(longest->kernel, 200));
  }
  std::sort(own.begin(), own.end(),
            [&](const KernelMetrics* a, const KernelMetrics* b) { return time(*a) < time(*b); });
  return *own[own.size() / 2];
}

}  // namespace convtune
