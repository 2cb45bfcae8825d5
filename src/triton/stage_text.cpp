// See stage_text.h. A sentence is read by the words that such texts use; a rule that only forbids to change
// what this command never changes is kept by that.
#include "triton/stage_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>

#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {

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

Error bad_document(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "document: " + why);
}

namespace {

constexpr std::int64_t kLargestValue = 64;  // per parameter of the stage
constexpr double kManyRegisters = 128;      // of a thread, where a text calls them many and gives no number
constexpr double kHighStalls = 0.2;         // where a text calls stalls high and gives no number

// The sentence in small letters, without marks of lists and emphasis.
std::string plain(std::string_view line) {
  std::string text;
  for (const char c : lower(line))
    if (c != '*' && c != '`') text += c;
  const std::size_t begin = text.find_first_not_of(" -#\t");
  text = begin == std::string::npos ? std::string() : text.substr(begin);
  for (const std::string_view mark : {"•", "→", "⚠️", "✅", "❌"})
    if (text.starts_with(mark)) text.erase(0, mark.size());
  return std::string(trimmed(text));
}

class StageReader {
 public:
  explicit StageReader(std::string_view text) {
    stage_.warps.clear(), stage_.stages.clear();
    for (const std::string_view line : lines_of(text)) {
      if (line.starts_with("```")) {
        fenced_ = !fenced_;
        continue;
      }
      if (line.empty()) {
        condition_.reset();  // its consequences are the lines below it
        continue;
      }
      line_ = line, text_ = plain(line);
      if (fenced_ || text_.empty()) continue;  // an example's code is no rule
      if (is_heading())
        condition_.reset();
      else
        stage_.sentences.push_back({std::string(line), rule()});
    }
  }

  RefineStage result() {
    if (!focus_grid_ && !focus_tiles_ && stage_.warps.empty() && stage_.stages.empty())
      throw bad_document(
          "its stage has neither num_warps nor num_stages among its parameters, and no other focus that is "
          "known");
    if (focus_grid_ || focus_tiles_) {
      stage_.kind = focus_grid_ ? RefineStage::Kind::grid : RefineStage::Kind::tiles;
      stage_.warps.clear(), stage_.stages.clear();
    } else if (stage_.warps.empty()) {
      stage_.kind = RefineStage::Kind::memory;
    }
    if (most_warps_) std::erase_if(stage_.warps, [&](std::int64_t value) { return value > *most_warps_; });
    return std::move(stage_);
  }

 private:
  bool has(std::string_view word) const { return text_.find(word) != std::string::npos; }
  bool has_any(std::initializer_list<std::string_view> words) const {
    return std::any_of(words.begin(), words.end(), [this](std::string_view word) { return has(word); });
  }
  std::optional<double> number_behind(std::string_view word) const {
    const std::size_t at = text_.find(word);
    if (at == std::string::npos) return std::nullopt;
    const std::vector<double> numbers = numbers_of(std::string_view(text_).substr(at + word.size()));
    return numbers.empty() ? std::nullopt : std::optional(numbers[0]);
  }

  // Headings have no rule of their own; the focus says which stage it is.
  bool is_heading() {
    if (text_.starts_with("focus") || text_.starts_with("stage:")) {
      focus_grid_ |= has("grid");
      focus_tiles_ |= has("block");
      return true;
    }
    return line_.starts_with("#") || (text_.ends_with(":") && !text_.starts_with("if ") && !has("num_"));
  }

  // Reads the sentence as a rule; empty where nothing takes it.
  std::string rule() {
    if (text_.starts_with("if ") && text_.find("unsure") == std::string::npos) return condition();
    if (condition_ && line_.find_first_of("-•*") == 0) return consequence();
    if (is_metric()) return metric();
    if (has("always include conservative baseline") || (has("always include") && has("num_warps=")))
      return baseline();
    if (has("revert")) return revert();
    if (has_any({"do not exceed", "at most", "no more than"}) && has("warp")) return most_warps();
    if (has("config")) return count();
    if (has("num_warps") && has_any({"only if", "only when"})) return "R1: num_warps by occupancy alone";
    if (has("num_stages") && has("stall")) return raise_on_stalls();
    if (has("num_stages") && has_any({"±", "+-", "+/-", "by one"})) return steps();
    const bool warps = values("num_warps", stage_.warps), stages = values("num_stages", stage_.stages);
    if (warps || stages)
      return fmt::format("values of {}", warps && stages ? "num_warps and num_stages"
                                         : warps         ? "num_warps"
                                                         : "num_stages");
    if (has_any({"include", "keep"}) && has("original")) return "R5: the original is among them";
    return kept_by_itself();
  }

  // A prohibition of what this command never does: it changes num_warps and num_stages of the list alone.
  std::string kept_by_itself() const {
    const bool forbids =
        has_any({"do not", "don't", "never", "avoid", "keep ", "otherwise keep", "not modify"});
    const bool others = has_any({"grid", "block", "access pattern", "tl.store", "rewrite", "redefine",
                                 "wrapper", "tile", "launch", "indexing"});
    return forbids && others ? "R3: nothing but num_warps and num_stages changes" : "";
  }

  bool is_metric() const { return has("__") && has_any({"sm__", "smsp__", "dram__", "lts__", "launch__"}); }
  std::string metric() {
    if (!has("stalled_memory_dependency")) return "a metric to look at";
    if (const auto most = number_behind("<")) stalls_ = *most / 100;
    if (stage_.raise_above_stalls) stage_.raise_above_stalls = stalls_;
    return fmt::format("memory stalls are high above {:.3g} %", 100 * stalls_);
  }

  std::string baseline() {
    const auto warps = number_behind("num_warps"), stages = number_behind("num_stages");
    if (!warps || !stages || !is_value(*warps) || !is_value(*stages)) return {};
    stage_.baseline_warps = static_cast<std::int64_t>(*warps);
    stage_.baseline_stages = static_cast<std::int64_t>(*stages);
    return fmt::format("num_warps={} num_stages={} is always among them", *stage_.baseline_warps,
                       *stage_.baseline_stages);
  }

  std::string revert() {
    const std::vector<double> numbers = numbers_of(text_);
    if (numbers.empty() || numbers.back() < 0 || numbers.back() >= 50) return {};
    stage_.min_gain = std::max(0.01, numbers.back() / 100);
    return fmt::format("R6: a gain of {:.3g} % at least", 100 * stage_.min_gain);
  }

  std::string most_warps() {
    const std::vector<double> numbers = numbers_of(text_);
    if (numbers.empty() || !is_value(numbers[0])) return {};
    most_warps_ = static_cast<std::int64_t>(numbers[0]);
    return fmt::format("num_warps is {} at most", *most_warps_);
  }

  // "3–6 nearby configs", "Max 2-3 configs", "2–4 configs max"; the same sentence may ask for the original.
  std::string count() {
    if (has("original") && numbers_of(text_).empty()) return "R5: the original is among them";
    const std::vector<double> numbers = numbers_of(text_);
    if (numbers.empty() || !is_value(numbers[0])) return kept_by_itself();
    const double last = numbers.size() > 1 ? numbers[1] : numbers[0];
    if (!is_value(last) || last < numbers[0]) return {};
    stage_.fewest = numbers.size() > 1 ? static_cast<std::int64_t>(numbers[0]) : 1;
    stage_.most = static_cast<std::int64_t>(last);
    return fmt::format("R4: {} to {} configs{}", stage_.fewest, stage_.most,
                       has("original") ? "; R5: the original is among them" : "");
  }

  std::string steps() {
    const std::vector<double> numbers = numbers_of(text_);
    stage_.most_steps =
        numbers.empty() || numbers[0] < 1 || numbers[0] > 8 ? 1 : static_cast<std::int64_t>(numbers[0]);
    return fmt::format("R2: num_stages by {} at most", stage_.most_steps);
  }

  // "Increase num_stages only if memory stalls are high", "num_stages: start with 2, only increase if ...".
  std::string raise_on_stalls() {
    if (const auto percent = number_behind("stall"); percent && has("%")) stalls_ = *percent / 100;
    stage_.raise_above_stalls = stalls_;
    std::string rule = fmt::format("num_stages rises where memory stalls are above {:.3g} %", 100 * stalls_);
    if (has("registers ok")) {
      stage_.raise_below_registers = kManyRegisters;
      rule += fmt::format(" and a thread has {:g} registers at most", kManyRegisters);
    }
    if (const auto first = number_behind("start with"); first && is_value(*first)) {
      stage_.baseline_stages = static_cast<std::int64_t>(*first);
      if (stage_.stages.empty()) stage_.stages = {1, 2, 3, 4};
      rule += fmt::format(", and {} is among them", *stage_.baseline_stages);
    } else if (stage_.stages.empty()) {
      stage_.stages = {1, 2, 3, 4};
    }
    return rule;
  }

  // "num_warps ∈ {2,4,8,16}", "num_stages: [2, 3, 4]", "num_stages: 2..4", "num_warps: 2-16".
  bool values(const char* name, std::vector<std::int64_t>& into) {
    const std::size_t at = text_.find(name);
    if (at == std::string::npos) return false;
    const std::string_view rest = std::string_view(text_).substr(at + std::string_view(name).size());
    std::vector<double> numbers;
    if (const std::size_t open = rest.find_first_of("{["); open != rest.npos) {
      const std::size_t close = rest.find_first_of("}]", open);
      if (close == rest.npos) return false;
      numbers = numbers_of(rest.substr(open, close - open));
      if (numbers.empty())
        throw bad_document(fmt::format("{} has no values in {}", name, convtune::quoted(std::string(line_))));
    } else if (numbers = range(rest); numbers.empty()) {
      return false;
    }
    std::vector<std::int64_t> found;
    for (const double value : numbers) {
      if (!is_value(value))
        throw bad_document(
            fmt::format("{} has the value {:g} in {}", name, value, convtune::quoted(std::string(line_))));
      found.push_back(static_cast<std::int64_t>(value));
    }
    into = found;
    return true;
  }

  // "2..4", "2-16", "2 to 16": the powers of two of num_warps, every number of num_stages.
  std::vector<double> range(std::string_view rest) const {
    const std::vector<double> ends = numbers_of(rest.substr(0, std::min<std::size_t>(rest.size(), 24)));
    const bool is_range = rest.find("..") != rest.npos || rest.find(" to ") != rest.npos ||
                          rest.find('-') != rest.npos || rest.find("–") != rest.npos;
    if (!is_range || ends.size() != 2 || !is_value(ends[0]) || !is_value(ends[1]) || ends[1] < ends[0])
      return {};
    std::vector<double> numbers;
    const bool doubles = has("num_warps");
    for (double value = ends[0]; value <= ends[1]; value = doubles ? 2 * value : value + 1)
      numbers.push_back(value);
    return numbers;
  }

  static bool is_value(double value) {
    return value == std::floor(value) && value >= 1 && value <= static_cast<double>(kLargestValue);
  }

  // "IF register pressure HIGH (regs > 128 or occupancy_limit_registers):", with what it asks for behind the
  // colon or in the lines below.
  std::string condition() {
    StageCondition found;
    found.text = std::string(line_);
    for (const std::string_view word : {"regs", "registers"}) {
      if (const auto above = number_behind(std::string(word) + " >")) found.registers_above = above;
      if (const auto below = number_behind(std::string(word) + " <")) found.registers_below = below;
    }
    found.limited_by_registers = has("occupancy_limit_registers");
    found.without_spills = has("no spill");
    if (has("distinct loads")) found.least_loads = number_behind("(");
    const bool known =
        found.registers_above || found.registers_below || found.limited_by_registers || found.least_loads;
    condition_ = known ? std::optional(found) : std::nullopt;
    if (!known) return {};
    const std::size_t colon = text_.find(':');
    if (colon != std::string::npos && colon + 1 < text_.size()) {
      text_ = std::string(trimmed(std::string_view(text_).substr(colon + 1)));
      return consequence();
    }
    return "a condition";
  }

  // "Try num_warps=8 for compute-bound fusion", "Keep num_stages=2 (higher stages need more registers)".
  std::string consequence() {
    StageCondition found = *condition_;
    if (found.text != line_) found.text += " " + std::string(line_);
    const auto warps = number_behind("num_warps="), stages = number_behind("num_stages=");
    if (warps && is_value(*warps)) found.warps = static_cast<std::int64_t>(*warps);
    if (stages && is_value(*stages)) found.stages = static_cast<std::int64_t>(*stages);
    if (!found.warps && !found.stages) return kept_by_itself();
    found.compute_bound = has("compute-bound");
    found.required = !has_any({"try", "may ", "often", "can "});
    stage_.conditions.push_back(found);
    return fmt::format("{} where the condition holds", found.required ? "nothing else" : "worth a try");
  }

  RefineStage stage_;
  std::string_view line_;
  std::string text_;  // for the line, plain
  bool fenced_ = false, focus_grid_ = false, focus_tiles_ = false;
  double stalls_ = kHighStalls;
  std::optional<std::int64_t> most_warps_;
  std::optional<StageCondition> condition_;  // above the lines that are being read
};

}  // namespace

RefineStage parse_stage(std::string_view text) {
  return StageReader(text).result();
}

}  // namespace convtune
