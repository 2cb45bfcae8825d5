// parse_document(): a text that asks for a tuning stage. Its parts begin with a line of their own,
// "# Target GPU", "[CURRENT CODE]"; what is between them is read by the words that such texts use.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/refine.h"
#include "model/target_of.h"
#include "triton/stage_text.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{8} << 20;

// The document's parts: the text between a heading that holds the word and the next one. A fence of three
// backquotes hides what looks like a heading.
class Parts {
 public:
  explicit Parts(std::string_view text) {
    bool fenced = false;
    std::string heading;
    std::size_t begin = 0;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = trimmed(text.substr(at, end - at));
      if (line.starts_with("```")) fenced = !fenced;
      if (!fenced && is_heading(line)) {
        parts_.emplace_back(heading, text.substr(begin, at - begin));
        heading = line.starts_with("**Task") ? "task" : lower(line), begin = std::min(end + 1, text.size());
        // "# Target GPU: 4090" is its sheet's first line, too.
        if (const auto gpu = heading.find("gpu:"); heading.find("target") < gpu && gpu != heading.npos)
          begin = static_cast<std::size_t>(line.data() - text.data()) + gpu;
      }
      at = end + 1;
    }
    parts_.emplace_back(heading, text.substr(begin));
  }

  std::optional<std::string_view> find(std::initializer_list<const char*> words) const {
    for (const auto& part : parts_)
      if (std::all_of(words.begin(), words.end(),
                      [&](const char* word) { return part.first.find(word) != part.first.npos; }))
        return part.second;
    return std::nullopt;
  }

 private:
  // "[CURRENT CODE]", with a stray letter or two behind it; "# Target GPU"; "## Optimization Stage";
  // "**Task**".
  static bool is_heading(std::string_view line) {
    constexpr std::size_t kStray = 2;
    const std::size_t close = line.rfind(']');
    const bool bracket = line.size() > 2 && line.front() == '[' && close != line.npos &&
                         close + 1 + kStray >= line.size() && line.find('"') == line.npos &&
                         line.find('{') == line.npos && !is_value(line);
    const std::string small = lower(line);
    const bool markdown = line.starts_with("##") &&
                          (small.find("stage") != small.npos || small.find("target gpu") != small.npos ||
                           small.find("current code") != small.npos || small.find("metrics") != small.npos ||
                           small.find("output") != small.npos);
    return bracket || markdown || line.starts_with("# ") || line.starts_with("**Task") ||
           small.starts_with("output rules");
  }
  static bool is_value(std::string_view line) {  // "[1, 2]" of a JSON array
    return line.size() > 1 && ((line[1] >= '0' && line[1] <= '9') || line[1] == '[');
  }
  std::vector<std::pair<std::string, std::string_view>> parts_;
};

// Returns the text inside a part's fence, or the whole part.
std::string_view fenced(std::string_view part) {
  const std::size_t open = part.find("```");
  if (open == part.npos) return part;
  const std::size_t begin = std::min(part.find('\n', open), part.size());
  std::size_t close = part.find("\n```", begin);
  close = std::min(close, part.size());
  return begin >= part.size() ? std::string_view()
                              : part.substr(begin + 1, close > begin ? close - begin : 0);
}

class SheetReader {
 public:
  explicit SheetReader(std::string_view sheet) {
    for (const std::string_view line : lines_of(sheet)) {
      const std::size_t colon = line.find(':');
      if (colon == line.npos) continue;
      fields_.emplace_back(lower(line.substr(0, colon)), std::string(trimmed(line.substr(colon + 1))));
    }
  }

  Target target(std::vector<std::string>& notes) const {
    const std::string name = text({"gpu name"}).value_or(text({"gpu"}).value_or(""));
    const auto capability = text({"compute capability"});
    if (name.empty() && !capability) throw bad_document("its sheet names no GPU and no compute capability");
    Target target = nearest(name, capability);
    const Target before = target;
    if (capability) set_capability(*capability, target);
    whole({"number of sms"}, 1, 4096, target.multiprocessors);
    number({"memory bandwidth"}, 1, 1e6, target.bandwidth_gb_s);
    if (const auto value = text({"memory bandwidth"}); value && lower(*value).find("tb/s") != value->npos)
      target.bandwidth_gb_s *= 1000;
    number({"tf32"}, 0.1, 1e5, target.tf32_tflops);
    number({"bfloat16"}, 0.1, 1e5, target.bf16_tflops);
    number({"fp16"}, 0.1, 1e5, target.fp16_tflops);
    whole({"registers per thread"}, 16, 1024, target.registers_per_thread);
    whole({"threads per block"}, 32, 4096, target.threads_per_block);
    whole({"threads per sm"}, 32, 8192, target.threads_per_multiprocessor);
    whole({"warp size"}, 32, 32, target.warp_size);
    whole({"warps per sm"}, 1, 256, target.warps_per_multiprocessor);
    size({"shared memory capacity per sm"}, target.smem_per_multiprocessor);
    size({"shared memory per thread block"}, target.smem_per_block);
    size({"l2 cache"}, target.l2_bytes);
    if (target == before)
      notes.push_back(fmt::format("the sheet is that of {}", target.name));
    else
      notes.push_back(
          fmt::format("the sheet's own numbers, and those of {} for what it does not say", before.name));
    return target;
  }

 private:
  std::optional<std::string> text(std::initializer_list<const char*> words) const {
    for (const auto& [name, value] : fields_)
      for (const char* word : words)
        if (name.find(word) != name.npos && !value.empty()) return value;
    return std::nullopt;
  }

  static Target nearest(const std::string& name, const std::optional<std::string>& capability) {
    std::string squeezed;
    for (const char c : lower(name))
      if (std::isalnum(static_cast<unsigned char>(c))) squeezed += c;
    const Target* best = nullptr;
    for (const Target& known : known_targets())
      if (!squeezed.empty() &&
          (known.name.find(squeezed) != known.name.npos || squeezed.find(known.name) != squeezed.npos))
        if (!best || known.name.size() < best->name.size()) best = &known;
    if (best) return *best;
    const std::vector<double> version = capability ? numbers_of(*capability) : std::vector<double>();
    if (version.empty() || version[0] < 5 || version[0] > 20)
      throw bad_document(
          fmt::format("the GPU {} is not known, and its sheet has no compute capability as in 8.9",
                      convtune::quoted(name)));
    const int tenths = static_cast<int>(std::lround(10 * version[0]));
    return typical_target({tenths / 10, tenths % 10}, 1);
  }

  static void set_capability(const std::string& text, Target& target) {
    const std::vector<double> version = numbers_of(text);
    if (version.empty() || version[0] < 5 || version[0] > 20)
      throw bad_document(fmt::format("the compute capability {} is none as in 8.9", convtune::quoted(text)));
    const int tenths = static_cast<int>(std::lround(10 * version[0]));
    target.capability = {tenths / 10, tenths % 10};
  }

  template <class T>
  void number(std::initializer_list<const char*> words, double low, double high, T& field) const {
    const auto found = text(words);
    if (!found) return;
    const std::vector<double> values = numbers_of(*found);
    if (values.empty() || values[0] < low || values[0] > high)
      throw bad_document(fmt::format("the sheet's {} is {}, and must be a number from {:g} to {:g}",
                                     *words.begin(), convtune::quoted(*found), low, high));
    field = static_cast<T>(values[0]);
  }
  void whole(std::initializer_list<const char*> words, double low, double high, int& field) const {
    number(words, low, high, field);
  }
  void size(std::initializer_list<const char*> words, std::int64_t& field) const {
    double value = 0;
    number(words, 1, 1e9, value);
    if (value == 0) return;
    const std::string unit = lower(*text(words));
    const double scale = unit.find("mb") != unit.npos || unit.find("mib") != unit.npos   ? 1 << 20
                         : unit.find("kb") != unit.npos || unit.find("kib") != unit.npos ? 1 << 10
                                                                                         : 1;
    field = static_cast<std::int64_t>(value * scale);
  }

  std::vector<std::pair<std::string, std::string>> fields_;
};

// Tells whether the rules ask for the file's parts in an order.
bool wants_order(std::string_view text) {
  const std::string low = lower(text);
  return low.find("order") != low.npos && low.find("imports") != low.npos;
}

}  // namespace

RefineDocument parse_document(std::string_view text) {
  if (text.size() > kMaxBytes)
    throw bad_document(fmt::format("has {} bytes; at most {} are read", text.size(), kMaxBytes));
  const Parts parts(text);
  const auto sheet = parts.find({"target", "gpu"});
  if (!sheet) throw bad_document("has no \"# Target GPU\"");
  auto stage = parts.find({"current", "stage"});
  if (!stage) stage = parts.find({"stage"});
  if (!stage || trimmed(*stage).empty()) stage = parts.find({"optimization stage"});
  if (!stage) throw bad_document("has no \"[OPTIMIZATION STAGE]\"");
  const auto code = parts.find({"code"});
  if (!code) throw bad_document("has no \"[CURRENT CODE]\"");
  RefineDocument document;
  document.target = SheetReader(*sheet).target(document.notes);
  document.stage = parse_stage(*stage);
  document.source = fenced(*code);
  if (trimmed(document.source).empty()) throw bad_document("its code is empty");
  if (const auto metrics = parts.find({"metrics"})) {
    std::string_view found = fenced(*metrics);
    while (!found.empty() && std::isspace(static_cast<unsigned char>(found.front()))) found.remove_prefix(1);
    while (!found.empty() && std::isspace(static_cast<unsigned char>(found.back()))) found.remove_suffix(1);
    const std::string small = lower(found.substr(0, 20));
    if (!found.empty() && found != "{}" && found != "[]" && small != "n/a" && small != "none" &&
        !small.starts_with("no ncu metrics") && !small.starts_with("no metrics"))
      document.metrics = parse_metrics(found);
  }
  if (document.metrics.empty()) document.notes.emplace_back("it has no metrics: occupancy is not measured");
  document.in_order = wants_order(parts.find({"output rules"}).value_or(std::string_view()));
  return document;
}

RefineDocument load_document(const std::string& path) {
  const std::string text = read_named_file(path);
  try {
    return parse_document(text);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", convtune::quoted(path, 200), error.what()));
  }
}

}  // namespace convtune
