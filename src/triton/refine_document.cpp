// parse_document(): a text that asks for the last tuning stage. Its parts begin with a line of their own,
// "# Target GPU", "[CURRENT CODE]"; what is between them is read by the words that such texts use.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/named_file.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/refine.h"
#include "model/target.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{8} << 20;
constexpr std::int64_t kLargestValue = 64;  // of a parameter of the stage

Error bad(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "document: " + why);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The numbers of a text, in order: "1008 GB/s" has one, "2,4,8,16" four.
std::vector<double> numbers_of(std::string_view text) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] < '0' || text[i] > '9') {
      ++i;
      continue;
    }
    double value = 0;
    const auto [rest, error] =
        std::from_chars(text.data() + i, text.data() + text.size(), value, std::chars_format::fixed);
    if (error != std::errc() || !std::isfinite(value)) break;
    numbers.push_back(value);
    i = static_cast<std::size_t>(rest - text.data());
  }
  return numbers;
}

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
      const bool bracket = line.size() > 2 && line.front() == '[' && line.back() == ']' &&
                           line.find('"') == line.npos && line.find('{') == line.npos && !is_value(line);
      if (!fenced && (bracket || line.starts_with("# ") || line.starts_with("**Task") ||
                      lower(line).starts_with("output rules"))) {
        parts_.emplace_back(heading, text.substr(begin, at - begin));
        heading = line.starts_with("**Task") ? "task" : lower(line), begin = std::min(end + 1, text.size());
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
  static bool is_value(std::string_view line) {  // "[1, 2]" of a JSON array
    return line.size() > 1 && ((line[1] >= '0' && line[1] <= '9') || line[1] == '[');
  }
  std::vector<std::pair<std::string, std::string_view>> parts_;
};

// What stands in the fence of a part, or the whole part.
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
    if (name.empty() && !capability) throw bad("its sheet names no GPU and no compute capability");
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
      throw bad(fmt::format("the GPU {} is not known, and its sheet has no compute capability as in 8.9",
                            convtune::quoted(name)));
    const int tenths = static_cast<int>(std::lround(10 * version[0]));
    return typical_target({tenths / 10, tenths % 10}, 1);
  }

  static void set_capability(const std::string& text, Target& target) {
    const std::vector<double> version = numbers_of(text);
    if (version.empty() || version[0] < 5 || version[0] > 20)
      throw bad(fmt::format("the compute capability {} is none as in 8.9", convtune::quoted(text)));
    const int tenths = static_cast<int>(std::lround(10 * version[0]));
    target.capability = {tenths / 10, tenths % 10};
  }

  template <class T>
  void number(std::initializer_list<const char*> words, double low, double high, T& field) const {
    const auto found = text(words);
    if (!found) return;
    const std::vector<double> values = numbers_of(*found);
    if (values.empty() || values[0] < low || values[0] > high)
      throw bad(fmt::format("the sheet's {} is {}, and must be a number from {:g} to {:g}", *words.begin(),
                            convtune::quoted(*found), low, high));
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

// "- num_warps ∈ {2,4,8,16}".
bool read_set(std::string_view line, const char* name, std::vector<std::int64_t>& values) {
  if (line.find(name) == line.npos) return false;
  const std::size_t open = line.find_first_of("{["), close = line.find_first_of("}]");
  if (open == line.npos || close == line.npos || close < open) return false;
  std::vector<std::int64_t> found;
  for (const double value : numbers_of(line.substr(open, close - open))) {
    if (value != std::floor(value) || value < 1 || value > kLargestValue)
      throw bad(fmt::format("{} has the value {:g} in {}", name, value, convtune::quoted(line)));
    found.push_back(static_cast<std::int64_t>(value));
  }
  if (found.empty()) throw bad(fmt::format("{} has no values in {}", name, convtune::quoted(line)));
  values = found;
  return true;
}

RefineStage stage_of(std::string_view part) {
  RefineStage stage;
  bool warps = false, stages = false;
  for (const std::string_view line : lines_of(part)) {
    const std::string low = lower(line);
    const std::vector<double> numbers = numbers_of(line);
    warps |= read_set(line, "num_warps", stage.warps);
    stages |= read_set(line, "num_stages", stage.stages);
    if (low.find("num_stages by") != low.npos && !numbers.empty() && numbers[0] >= 1 && numbers[0] <= 8)
      stage.most_steps = static_cast<std::int64_t>(numbers[0]);
    if (low.find("config") != low.npos && numbers.size() >= 2 && numbers[0] >= 1 &&
        numbers[1] >= numbers[0] && numbers[1] <= kLargestValue) {
      stage.fewest = static_cast<std::int64_t>(numbers[0]);
      stage.most = static_cast<std::int64_t>(numbers[1]);
    }
    if (low.find("revert") != low.npos && !numbers.empty() && numbers.back() >= 0 && numbers.back() < 50)
      stage.min_gain = std::max(0.01, numbers.back() / 100);
  }
  if (!warps && !stages)
    throw bad(
        "its stage has neither num_warps nor num_stages among its parameters: it is not the last stage, "
        "which "
        "alone this command does");
  return stage;
}

// Whether the rules ask for the file's parts in an order.
bool wants_order(std::string_view text) {
  const std::string low = lower(text);
  return low.find("order") != low.npos && low.find("imports") != low.npos;
}

}  // namespace

RefineDocument parse_document(std::string_view text) {
  if (text.size() > kMaxBytes)
    throw bad(fmt::format("has {} bytes; at most {} are read", text.size(), kMaxBytes));
  const Parts parts(text);
  const auto sheet = parts.find({"target", "gpu"});
  if (!sheet) throw bad("has no \"# Target GPU\"");
  auto stage = parts.find({"current", "stage"});
  if (!stage) stage = parts.find({"stage"});
  if (!stage || trimmed(*stage).empty()) stage = parts.find({"optimization stage"});
  if (!stage) throw bad("has no \"[OPTIMIZATION STAGE]\"");
  const auto code = parts.find({"code"});
  if (!code) throw bad("has no \"[CURRENT CODE]\"");
  RefineDocument document;
  document.target = SheetReader(*sheet).target(document.notes);
  document.stage = stage_of(*stage);
  document.source = fenced(*code);
  if (trimmed(document.source).empty()) throw bad("its code is empty");
  if (const auto metrics = parts.find({"metrics"})) {
    std::string_view found = fenced(*metrics);
    while (!found.empty() && std::isspace(static_cast<unsigned char>(found.front()))) found.remove_prefix(1);
    while (!found.empty() && std::isspace(static_cast<unsigned char>(found.back()))) found.remove_suffix(1);
    if (!found.empty() && found != "{}" && found != "[]" && lower(found) != "n/a" && lower(found) != "none")
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
