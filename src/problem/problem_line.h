// A problem line split into numbers by their letters, words by their keys, and a name; not yet understood.
// problem_text gives it its meaning.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace convtune {

struct Number {
  std::int64_t value = 0;
  std::size_t position = 0;
};
struct Word {
  std::string_view value;
  std::size_t position = 0;
};

// Views look into the text.
class ProblemLine {
 public:
  explicit ProblemLine(std::string_view text);  // throws Error{invalid_argument} that names the column

  std::map<std::string_view, Number> numbers;
  std::map<std::string_view, Word> words;
  std::optional<std::string_view> name;

  std::optional<Number> number(std::string_view letters) const;
  // Tells whether sizes are those of a transposed layer, and not of the convolution that it transposes.
  bool is_transposed() const;

  // Errors that quote the line.
  [[noreturn]] void fail(const std::string& why) const;
  [[noreturn]] void fail_at(std::size_t position, const std::string& why) const;
  [[noreturn]] void fail_missing(std::string_view letters, std::string_view rule = "") const;

  // Digits only, all of them, at the start of `text`; `what` is said when there are none.
  std::int64_t parse_number(std::string_view text, std::string_view what, std::size_t position) const;

 private:
  void skip_blanks();
  bool at_blank_or_end() const;
  template <class Predicate>
  std::string_view take_while(Predicate predicate);
  void scan_letters();
  void scan_name();
  void scan_number(std::string_view letters, std::size_t begin);
  void scan_word();

  std::string_view text_;
  std::size_t position_ = 0;
};

}  // namespace convtune
