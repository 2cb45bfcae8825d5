// A small table printer: columns as wide as they must be, numbers to the right. A terminal that is too narrow
// gets fewer columns, in an order that the table states. Where none of that is enough, the last column wraps,
// or it stands on lines of its own below its row. Without a terminal: plain text, all of it, nothing wrapped.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace convtune::cli {

// Describes how text is laid out for the stream that it is written to.
struct Style {
  bool terminal = false;  // a person is watching: lines may be redrawn
  bool color = false;     // a terminal, and neither NO_COLOR nor TERM=dumb; or as --color says
  int width = 0;          // of the terminal; 0: no limit
};
Style style_of(std::FILE* stream);

// Holds the choice of --color for the whole process; it is stronger than NO_COLOR.
enum class Color { automatic, always, never };
void set_color(Color color);

// Columns that text takes on a terminal: UTF-8; combining marks take none, East Asian wide ones two.
int display_width(std::string_view text);
// Text as a terminal may get it: control characters and malformed bytes become U+FFFD.
std::string printable(std::string_view text);
// At most `width` columns, the last of them "…" where something was cut off.
std::string cut(std::string_view text, int width);
// Shortens with "…" in the middle: names are told apart by their ends as much as by their beginnings.
std::string cut_middle(std::string_view text, int width);

// Text broken at blanks into lines of at most `width` columns (0: no limit; a longer word stands alone).
// Lines after the first begin with `indent` blanks; of the first `begin` columns are taken already.
std::string wrapped(std::string_view text, int width, int indent, int begin = 0);

enum class Align { left, right };
enum class Tone { plain, strong, bad };

class Table {
 public:
  struct Column {
    std::string header;
    Align align = Align::left;
    int drop = 0;  // on a narrow terminal the column with 1 goes first, then 2, ...; those with 0 stay
    bool shortens = false;  // text that is cut in its middle, down to kLeastWidth, before a column goes
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void add_row(std::vector<std::string> cells, Tone tone = Tone::plain);
  std::string render(const Style& style) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    Tone tone;
  };
  // Describes the part of the table that a terminal gets: the columns, and where the last of them stands.
  struct Layout {
    std::vector<std::size_t> shown;
    enum { whole, wraps, below } last = whole;
  };
  std::vector<int> widths() const;
  // For a whole that does not fit into `room`: shorter ones of the columns that may be cut.
  void shorten(std::vector<int>& widths, int room) const;
  Layout layout(const std::vector<int>& widths, int room) const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace convtune::cli
