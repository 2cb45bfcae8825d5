// The text form of Conv2dProblem: a hand-written scanner splits a line into numbers by their letters
// and words by their keys; parse_problem then fills in what was left out. See problem.h for the grammar.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <optional>

#include "convtune/error.h"
#include "convtune/problem.h"
#include "quoted.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;
constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::array<std::string_view, 16> kLetters = {"mb", "g",  "ic", "ih", "iw", "oc", "oh", "ow",
                                                       "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw"};
constexpr std::array<std::string_view, 6> kLettersOf3d = {"id", "od", "kd", "sd", "pd", "dd"};
constexpr std::array<std::string_view, 7> kKeys = {"precision", "layout",     "dtype",    "act",
                                                   "bias",      "pad_bottom", "pad_right"};

template <class List>
bool contains(const List& list, std::string_view item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

struct Number {
  std::int64_t value = 0;
  std::size_t position = 0;
};
struct Word {
  std::string_view value;
  std::size_t position = 0;
};

// One line, split but not yet understood. Views look into the text.
class Line {
 public:
  explicit Line(std::string_view text) : text_(text) {
    if (text.size() > kMaxTextBytes)
      fail(fmt::format("{} bytes are more than the limit of {}", text.size(), kMaxTextBytes));
    skip_blanks();
    scan_letters();
    for (skip_blanks(); position_ < text_.size(); skip_blanks()) scan_word();
  }

  std::map<std::string_view, Number> numbers;
  std::map<std::string_view, Word> words;
  std::optional<std::string_view> name;

  std::optional<Number> number(std::string_view letters) const {
    const auto found = numbers.find(letters);
    return found == numbers.end() ? std::nullopt : std::optional(found->second);
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorKind::invalid_argument, fmt::format("problem {}: {}", quoted(text_), why));
  }
  [[noreturn]] void fail_at(std::size_t position, const std::string& why) const {
    fail(fmt::format("column {}: {}", position + 1, why));
  }

  // Digits only, all of them, at the start of `text`; `what` is said when there are none.
  std::int64_t parse_number(std::string_view text, std::string_view what, std::size_t position) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range)
      fail_at(position, fmt::format("{} is over 2^63 - 1", quoted(text)));
    if (error != std::errc() || end != text.data() + text.size() || !is_digit(text.front()))
      fail_at(position, fmt::format("{} needs a whole number, not {}", what, quoted(text)));
    return value;
  }

 private:
  void skip_blanks() { position_ = std::min(text_.find_first_not_of(kBlanks, position_), text_.size()); }

  template <class Predicate>
  std::string_view take_while(Predicate predicate) {
    const std::size_t begin = position_;
    while (position_ < text_.size() && predicate(text_[position_])) ++position_;
    return text_.substr(begin, position_ - begin);
  }

  bool at_blank_or_end() const {
    return position_ == text_.size() || kBlanks.find(text_[position_]) != kBlanks.npos;
  }

  void scan_letters() {
    while (!at_blank_or_end()) {
      if (text_[position_] == '_') {  // benchdnn lets it separate tokens
        ++position_;
        continue;
      }
      const std::size_t begin = position_;
      const std::string_view letters = take_while(is_letter);
      if (letters == "n") {
        scan_name(begin);
      } else if (contains(kLetters, letters)) {
        scan_number(letters, begin);
      } else if (contains(kLettersOf3d, letters)) {
        fail_at(begin, fmt::format("'{}' belongs to 3-D convolutions; convtune has 2-D ones only", letters));
      } else {
        const std::string_view token = letters.empty() ? text_.substr(begin, 1) : letters;
        fail_at(begin, fmt::format("{} is none of {} n\"name\"", quoted(token), fmt::join(kLetters, " ")));
      }
    }
  }

  void scan_name(std::size_t begin) {
    if (position_ == text_.size() || text_[position_] != '"')
      fail_at(begin,
              "'n' starts a name, as in n\"conv1\"; the batch is 'mb' (a shell takes the quotes away: put "
              "'…' round the line)");
    if (name) fail_at(begin, "a second name");
    const std::size_t first = position_ + 1;
    const std::size_t quote = text_.find('"', first);
    if (quote == text_.npos) fail_at(begin, "the name has no closing '\"'");
    name = text_.substr(first, quote - first);
    position_ = quote + 1;
  }

  void scan_number(std::string_view letters, std::size_t begin) {
    const std::size_t first = position_;
    std::string_view digits = take_while(is_digit);
    if (digits.empty()) digits = text_.substr(first, 1);  // for the message
    const Number number{parse_number(digits, fmt::format("'{}'", letters), begin), begin};
    if (!numbers.emplace(letters, number).second) fail_at(begin, fmt::format("'{}' is given twice", letters));
  }

  void scan_word() {
    const std::size_t begin = position_;
    position_ = std::min(text_.find_first_of(kBlanks, begin), text_.size());
    const std::string_view word = text_.substr(begin, position_ - begin);
    const std::size_t equals = word.find('=');
    if (equals == word.npos)
      fail_at(begin, fmt::format("after a blank comes key=value, not {}", quoted(word)));
    const std::string_view key = word.substr(0, equals);
    if (!contains(kKeys, key))
      fail_at(begin, fmt::format("{} is none of the keys {}", quoted(key), fmt::join(kKeys, " ")));
    if (!words.emplace(key, Word{word.substr(equals + 1), begin}).second)
      fail_at(begin, fmt::format("'{}' is given twice", key));
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

struct Pair {
  std::int64_t h, w;
};

// Of a pair, a missing one equals the other.
std::optional<Pair> pair(const Line& line, std::string_view h, std::string_view w) {
  const auto height = line.number(h), width = line.number(w);
  if (!height && !width) return std::nullopt;
  return Pair{(height ? height : width)->value, (width ? width : height)->value};
}

void apply_words(const Line& line, Conv2dProblem& problem) {
  for (const auto& [key, word] : line.words) {
    try {
      if (key == "precision") problem.precision = parse_precision(word.value);
      if (key == "layout") problem.layout = parse_layout(word.value);
      if (key == "dtype") problem.dtype = parse_dtype(word.value);
      if (key == "act") problem.activation = parse_activation(word.value);
    } catch (const Error& error) {
      line.fail_at(word.position, error.what());
    }
    if (key == "bias") {
      if (word.value != "0" && word.value != "1")
        line.fail_at(word.position, fmt::format("bias is 0 or 1, not {}", quoted(word.value)));
      problem.bias = word.value == "1";
    }
    if (key == "pad_bottom") problem.pad_bottom = line.parse_number(word.value, key, word.position);
    if (key == "pad_right") problem.pad_right = line.parse_number(word.value, key, word.position);
  }
}

// An output size that the line states must be the one that follows from the rest.
void check_output(const Line& line, std::string_view letters, std::string_view other, std::int64_t actual,
                  std::string_view padding) {
  const auto own = line.number(letters);
  const auto stated = own ? own : line.number(other);
  if (!stated || stated->value == actual) return;
  line.fail_at(
      stated->position,
      fmt::format("{}{} is stated{}, but the other numbers give {}{}; if the padding is not symmetric, "
                  "add {}=N",
                  letters, stated->value, own ? "" : fmt::format(" by {}", other), letters, actual, padding));
}

}  // namespace

Conv2dProblem parse_problem(std::string_view text) {
  const Line line(text);
  const auto need = [&](const auto& found, std::string_view letters) {
    if (!found) line.fail(fmt::format("{} is missing, and has no default", letters));
    return *found;
  };
  // Past the scanner's int64, dilation + 1 is the one sum that could overflow before validate() sees it.
  const auto dilation = [&](std::string_view letters, std::int64_t value) {
    if (value == std::numeric_limits<std::int64_t>::max()) line.fail(fmt::format("{} is too large", letters));
    return value + 1;
  };

  Conv2dProblem problem;
  problem.n = line.number("mb").value_or(Number{2}).value;
  problem.groups = line.number("g").value_or(Number{1}).value;
  problem.c = need(line.number("ic"), "ic").value;
  problem.k = need(line.number("oc"), "oc").value;
  const Pair image = need(pair(line, "ih", "iw"), "ih");
  const Pair filter = need(pair(line, "kh", "kw"), "kh");
  const Pair stride = pair(line, "sh", "sw").value_or(Pair{1, 1});
  const Pair padding = pair(line, "ph", "pw").value_or(Pair{0, 0});
  const Pair holes = pair(line, "dh", "dw").value_or(Pair{0, 0});
  problem.h = image.h, problem.w = image.w;
  problem.r = filter.h, problem.s = filter.w;
  problem.stride_h = stride.h, problem.stride_w = stride.w;
  problem.dilation_h = dilation("dh", holes.h), problem.dilation_w = dilation("dw", holes.w);
  problem.pad_top = problem.pad_bottom = padding.h;
  problem.pad_left = problem.pad_right = padding.w;
  apply_words(line, problem);
  problem.name = line.name.value_or("");

  try {
    validate(problem);
  } catch (const Error& error) {
    line.fail(error.what());
  }
  check_output(line, "oh", "ow", problem.p(), "pad_bottom");
  check_output(line, "ow", "oh", problem.q(), "pad_right");
  return problem;
}

std::string to_string(const Conv2dProblem& problem) {
  const Conv2dProblem standard;
  std::string letters, words;
  const auto add = [&](std::string_view name, std::int64_t value) {
    letters += fmt::format("{}{}", name, value);
  };
  // A width is said only where it differs from its height, and a pair only where it is not the default.
  const auto add_pair = [&](std::string_view h, std::string_view w, Pair value,
                            std::optional<std::int64_t> usual) {
    if (value.h == value.w && value.h == usual) return;
    add(h, value.h);
    if (value.w != value.h) add(w, value.w);
  };
  const auto add_word = [&](std::string_view key, auto value) { words += fmt::format(" {}={}", key, value); };

  if (problem.groups != 1) add("g", problem.groups);
  if (problem.n != 2) add("mb", problem.n);
  add("ic", problem.c);
  add_pair("ih", "iw", {problem.h, problem.w}, std::nullopt);
  add("oc", problem.k);
  add_pair("kh", "kw", {problem.r, problem.s}, std::nullopt);
  add_pair("sh", "sw", {problem.stride_h, problem.stride_w}, 1);
  add_pair("ph", "pw", {problem.pad_top, problem.pad_left}, 0);
  add_pair("dh", "dw", {problem.dilation_h - 1, problem.dilation_w - 1}, 0);
  if (!problem.name.empty()) letters += fmt::format("n\"{}\"", problem.name);

  if (problem.precision != standard.precision) add_word("precision", to_string(problem.precision));
  if (problem.layout != standard.layout) add_word("layout", to_string(problem.layout));
  if (problem.dtype != standard.dtype) add_word("dtype", to_string(problem.dtype));
  if (problem.activation != standard.activation) add_word("act", to_string(problem.activation));
  if (problem.bias != standard.bias) add_word("bias", problem.bias ? 1 : 0);
  if (problem.pad_bottom != problem.pad_top) add_word("pad_bottom", problem.pad_bottom);
  if (problem.pad_right != problem.pad_left) add_word("pad_right", problem.pad_right);
  return letters + words;
}

std::string key(const Conv2dProblem& problem) {
  Conv2dProblem nameless = problem;
  nameless.name.clear();
  return to_string(nameless);
}

}  // namespace convtune
