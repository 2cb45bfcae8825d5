// A small table printer: columns as wide as they must be, numbers to the right, and a last column
// that wraps where a terminal is narrow. Without a terminal: plain text, nothing wrapped.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace convtune::cli {

// How a stream wants its text.
struct Style {
  bool terminal = false;  // a person is watching: lines may be redrawn
  bool color = false;     // a terminal, and neither NO_COLOR nor TERM=dumb
  int width = 0;          // of the terminal; 0: no limit
};
Style style_of(std::FILE* stream);

// Columns that text takes on a terminal: UTF-8; combining marks take none, East Asian wide ones two.
int display_width(std::string_view text);
// Text as a terminal may get it: control characters and malformed bytes become U+FFFD.
std::string printable(std::string_view text);
// At most `width` columns, the last of them "…" where something was cut off.
std::string cut(std::string_view text, int width);

enum class Align { left, right };
enum class Tone { plain, strong, bad };

class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add_row(std::vector<std::string> cells, Tone tone = Tone::plain);
  std::string render(const Style& style) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Tone tone;
  };
  std::vector<int> widths() const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace convtune::cli
