// Widths, wrapping and colours of the table printer.
#include "table.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdlib>

namespace convtune::cli {
namespace {

constexpr int kGap = 2;            // blanks between columns
constexpr int kUnknownWidth = 80;  // of a terminal that does not say
constexpr int kLeastWidth = 16;    // of a column that is cut
constexpr int kIndentBelow = 4;    // of a last column that stands below its row

Color asked_color = Color::automatic;

struct CodePoint {
  std::uint32_t value = 0xFFFD;
  std::size_t bytes = 1;
  bool valid = false;
};

// Decodes the first character of non-empty text; strict: no overlong forms, no surrogates.
CodePoint decode(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 0;
  if (bytes == 0 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t value = lead & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3F);
  }
  const std::uint32_t smallest = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (value < smallest || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return {};
  return {value, bytes, true};
}

struct Range {
  std::uint32_t first, last;
};
constexpr Range kZeroWidth[] = {{0x300, 0x36F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}};
constexpr Range kDoubleWidth[] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},  {0xAC00, 0xD7A3}, {0xF900, 0xFAFF},
                                  {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},  {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F},
                                  {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};

bool is_in(std::uint32_t value, const auto& ranges) {
  return std::any_of(std::begin(ranges), std::end(ranges),
                     [&](Range range) { return range.first <= value && value <= range.last; });
}

int width_of(const CodePoint& point) {
  if (!point.valid) return 1;
  return is_in(point.value, kZeroWidth) ? 0 : is_in(point.value, kDoubleWidth) ? 2 : 1;
}

// Calls `take` for every word between single blanks, the empty ones included.
void for_each_word(std::string_view text, auto&& take) {
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    take(text.substr(start, end - start));
    start = end + 1;
  }
}

int longest_word(std::string_view text) {
  int longest = 0;
  for_each_word(text, [&](std::string_view word) { longest = std::max(longest, display_width(word)); });
  return longest;
}

std::string pad(const std::string& text, int width, Align align) {
  const std::string blanks(static_cast<std::size_t>(std::max(0, width - display_width(text))), ' ');
  return align == Align::right ? blanks + text : text + blanks;
}

std::string trim_right(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string paint(const std::string& line, Tone tone, const Style& style) {
  if (!style.color || tone == Tone::plain) return line;
  return fmt::format("\033[{}m{}\033[0m", tone == Tone::strong ? "1" : "31", line);
}

}  // namespace

void set_color(Color color) {
  asked_color = color;
}

Style style_of(std::FILE* stream) {
  const auto variable = [](const char* name) -> std::string_view {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  Style style;
  const int fd = ::fileno(stream);
  style.terminal = fd >= 0 && ::isatty(fd) && variable("TERM") != "dumb";
  style.color = asked_color == Color::always ||
                (asked_color == Color::automatic && style.terminal && variable("NO_COLOR").empty());
  winsize size = {};
  if (style.terminal)
    style.width = ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknownWidth;
  return style;
}

int display_width(std::string_view text) {
  int width = 0;
  while (!text.empty()) {
    const CodePoint point = decode(text);
    width += width_of(point);
    text.remove_prefix(point.bytes);
  }
  return width;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const CodePoint point = decode(text);
    const bool control = point.value < 0x20 || (point.value >= 0x7F && point.value < 0xA0);
    if (point.valid && !control)
      out += text.substr(0, point.bytes);
    else
      out += "\uFFFD";
    text.remove_prefix(point.bytes);
  }
  return out;
}

std::string cut(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  if (width <= 0) return {};
  std::string out;
  for (int used = 0; !text.empty();) {
    const CodePoint point = decode(text);
    used += width_of(point);
    if (used > width - 1) break;
    out += text.substr(0, point.bytes);
    text.remove_prefix(point.bytes);
  }
  return out + "…";
}

std::string cut_middle(std::string_view text, int width) {
  if (display_width(text) <= width || width <= 2) return cut(text, width);
  const int behind = (width - 1) / 2;
  std::string_view end = text;
  while (display_width(end) > behind) end.remove_prefix(decode(end).bytes);
  return cut(text, width - behind) + std::string(end);
}

std::string wrapped(std::string_view text, int width, int indent, int begin) {
  std::string out;
  int column = begin;
  for_each_word(text, [&, first = true](std::string_view word) mutable {
    if (!first && width > 0 && column + 1 + display_width(word) > width) {
      out += '\n' + std::string(static_cast<std::size_t>(indent), ' ');
      column = indent;
    } else if (!first) {
      out += ' ';
      ++column;
    }
    out += word;
    column += display_width(word);
    first = false;
  });
  return out;
}

void Table::add_row(std::vector<std::string> cells, Tone tone) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back({std::move(cells), tone});
}

std::vector<int> Table::widths() const {
  std::vector<int> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    int width = display_width(columns_[i].header);
    for (const Row& row : rows_) width = std::max(width, display_width(row.cells[i]));
    widths.push_back(width);
  }
  return widths;
}

void Table::shorten(std::vector<int>& widths, int room) const {
  if (room <= 0) return;
  int over = -kGap - room;
  for (const int width : widths) over += width + kGap;
  for (std::size_t i = 0; i < columns_.size() && over > 0; ++i)
    if (columns_[i].shortens && widths[i] > kLeastWidth) {
      const int less = std::min(over, widths[i] - std::max(kLeastWidth, display_width(columns_[i].header)));
      widths[i] -= std::max(0, less);
      over -= std::max(0, less);
    }
}

Table::Layout Table::layout(const std::vector<int>& width, int room) const {
  Layout all;
  for (std::size_t i = 0; i < columns_.size(); ++i) all.shown.push_back(i);
  const std::size_t last = columns_.size() - 1;
  const auto total = [&](const std::vector<std::size_t>& shown) {
    int sum = -kGap;
    for (const std::size_t i : shown) sum += width[i] + kGap;
    return sum;
  };
  if (room <= 0 || total(all.shown) <= room) return all;

  const bool text = columns_[last].align == Align::left;
  int least = width[last] / 2;  // room for a last column that wraps: more than two lines are hard to follow
  for (const Row& row : rows_) least = std::max(least, longest_word(row.cells[last]));
  const auto drop_one = [&](std::vector<std::size_t>& shown) {
    const auto rank = [&](std::size_t i) { return columns_[i].drop > 0 ? columns_[i].drop : INT_MAX; };
    const auto first = std::min_element(shown.begin(), shown.end(),
                                        [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
    if (first == shown.end() || columns_[*first].drop == 0) return false;
    shown.erase(first);
    return true;
  };
  Layout fewest = all;
  while (drop_one(fewest.shown))
    if (total(fewest.shown) <= room) return fewest;
  if (!text) return fewest;  // no more can be done
  // The last column is too long even so: as many columns as let it wrap well, or stand below.
  for (Layout fewer = all;;) {
    if (width[last] - (total(fewer.shown) - room) >= least) {
      fewer.last = Layout::wraps;
      return fewer;
    }
    if (!drop_one(fewer.shown)) break;
  }
  if (last == 0) return fewest;
  Layout below = all;
  below.last = Layout::below;
  below.shown.pop_back();
  while (total(below.shown) > room && drop_one(below.shown)) continue;
  return below;
}

std::string Table::render(const Style& style) const {
  if (columns_.empty()) return {};
  std::vector<int> width = widths();
  shorten(width, style.width);
  const auto [shown, last] = layout(width, style.width);
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells, Tone tone, bool header) {
    std::string line;
    for (const std::size_t i : shown) {
      if (i == columns_.size() - 1 && last == Layout::wraps) {
        const int indent = display_width(line);
        line += wrapped(cells[i], style.width, indent, indent);
        break;
      }
      line +=
          pad(columns_[i].shortens ? cut_middle(cells[i], width[i]) : cells[i], width[i], columns_[i].align) +
          std::string(kGap, ' ');
    }
    if (last == Layout::below && !header)
      line = trim_right(line) + '\n' + std::string(kIndentBelow, ' ') +
             wrapped(cells.back(), style.width, kIndentBelow, kIndentBelow);
    for (std::size_t start = 0; start <= line.size();) {  // a colour ends with its line
      const std::size_t end = std::min(line.find('\n', start), line.size());
      out += paint(trim_right(line.substr(start, end - start)), tone, style) + '\n';
      start = end + 1;
    }
  };
  std::vector<std::string> headers;
  for (const Column& column : columns_) headers.push_back(column.header);
  print(headers, Tone::strong, true);
  for (const Row& row : rows_) print(row.cells, row.tone, false);
  return out;
}

}  // namespace convtune::cli
