// The scanner of problem lines: benchdnn's letters with their numbers, its name, our key=value words.
#include "problem/problem_line.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;
constexpr std::string_view kLineBlanks = " \t\r\n";
constexpr std::array<std::string_view, 22> kLetters = {"mb", "g",  "ic", "id", "ih", "iw", "oc", "od",
                                                       "oh", "ow", "kd", "kh", "kw", "sd", "sh", "sw",
                                                       "pd", "ph", "pw", "dd", "dh", "dw"};
// The last three are benchdnn's own.
constexpr std::array<std::string_view, 16> kKeys = {
    "precision", "layout",   "dtype",      "dir",       "act",   "bias", "residual", "rounding",
    "snake",     "pad_back", "pad_bottom", "pad_right", "cache", "--dt", "--dir",    "--attr-post-ops"};

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

}  // namespace

ProblemLine::ProblemLine(std::string_view text) : text_(text) {
  if (text.size() > kMaxLineBytes)
    fail(fmt::format("{} bytes are more than the limit of {}", text.size(), kMaxLineBytes));
  skip_blanks();
  scan_letters();
  for (skip_blanks(); position_ < text_.size(); skip_blanks()) scan_word();
}

std::optional<Number> ProblemLine::number(std::string_view letters) const {
  const auto found = numbers.find(letters);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

bool ProblemLine::is_transposed() const {
  const auto direction = words.find("dir");
  return direction != words.end() && direction->second.value == "transposed";
}

void ProblemLine::fail(const std::string& why) const {
  throw Error(ErrorKind::invalid_argument, fmt::format("problem {}: {}", quoted(text_), why));
}
void ProblemLine::fail_at(std::size_t position, const std::string& why) const {
  fail(fmt::format("column {}: {}", position + 1, why));
}

void ProblemLine::fail_missing(std::string_view letters, std::string_view rule) const {
  const bool batch_meant = name && !name->empty() && is_digit(name->front());
  fail(fmt::format("{} is missing{}{}", letters, rule.empty() ? ", and has no default" : rule,
                   batch_meant ? "; 'n' starts a name, the batch is 'mb'" : ""));
}

std::int64_t ProblemLine::parse_number(std::string_view text, std::string_view what,
                                       std::size_t position) const {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range)
    fail_at(position, fmt::format("{} is over 2^63 - 1", quoted(text)));
  if (error != std::errc() || end != text.data() + text.size() || !is_digit(text.front()))
    fail_at(position, fmt::format("{} needs a whole number, not {}", what, quoted(text)));
  return value;
}

void ProblemLine::skip_blanks() {
  position_ = std::min(text_.find_first_not_of(kLineBlanks, position_), text_.size());
}

template <class Predicate>
std::string_view ProblemLine::take_while(Predicate predicate) {
  const std::size_t begin = position_;
  while (position_ < text_.size() && predicate(text_[position_])) ++position_;
  return text_.substr(begin, position_ - begin);
}

bool ProblemLine::at_blank_or_end() const {
  return position_ == text_.size() || kLineBlanks.find(text_[position_]) != kLineBlanks.npos;
}

void ProblemLine::scan_letters() {
  while (!at_blank_or_end()) {
    if (text_[position_] == '_') {  // benchdnn lets it separate tokens
      ++position_;
      continue;
    }
    // A name alone is no problem: rather a word of another kind.
    if (text_[position_] == 'n' && !numbers.empty()) return scan_name();
    const std::size_t begin = position_;
    const std::string_view letters = take_while(is_letter);
    if (contains(kLetters, letters)) {
      scan_number(letters, begin);
    } else {
      const std::string_view token = letters.empty() ? text_.substr(begin, 1) : letters;
      fail_at(begin, fmt::format("{} is none of {} n\"name\"", quoted(token), fmt::join(kLetters, " ")));
    }
  }
}

// The name is the rest of the letters; without quotes, where a shell took them away, say, up to a blank.
void ProblemLine::scan_name() {
  const std::size_t begin = position_++;
  if (at_blank_or_end() || text_[position_] != '"') {
    name = text_.substr(position_, text_.find_first_of(kLineBlanks, position_) - position_);
    position_ += name->size();
    return;
  }
  const std::size_t first = position_ + 1, quote = text_.find('"', first);
  if (quote == text_.npos) fail_at(begin, "the name has no closing '\"'");
  name = text_.substr(first, quote - first);
  position_ = quote + 1;
  if (!at_blank_or_end()) fail_at(position_, "after a name comes a blank: put it behind the numbers");
}

void ProblemLine::scan_number(std::string_view letters, std::size_t begin) {
  const std::size_t first = position_;
  std::string_view digits = take_while(is_digit);
  if (digits.empty()) digits = text_.substr(first, 1);  // for the message
  const Number number{parse_number(digits, fmt::format("'{}'", letters), begin), begin};
  if (!numbers.emplace(letters, number).second) fail_at(begin, fmt::format("'{}' is given twice", letters));
}

void ProblemLine::scan_word() {
  const std::size_t begin = position_;
  position_ = std::min(text_.find_first_of(kLineBlanks, begin), text_.size());
  const std::string_view word = text_.substr(begin, position_ - begin);
  const std::size_t equals = word.find('=');
  if (equals == word.npos) fail_at(begin, fmt::format("after a blank comes key=value, not {}", quoted(word)));
  const std::string_view key = word.substr(0, equals);
  if (!contains(kKeys, key))
    fail_at(begin, fmt::format("{} is none of the keys {}", quoted(key), fmt::join(kKeys, " ")));
  if (!words.emplace(key, Word{word.substr(equals + 1), begin}).second)
    fail_at(begin, fmt::format("'{}' is given twice", key));
}

}  // namespace convtune
