// See html_table.h. Ends of cells and rows are left out, as HTML allows: a page has thousands of them.
#include "page/html_table.h"

#include <algorithm>

namespace convtune::page {

Markup Table::class_of(std::size_t column) const {
  const Column& one = columns_.at(column);
  return {one.number ? (one.minor ? " class=\"n m\"" : " class=\"n\"") : one.minor ? " class=\"m\"" : ""};
}

void Table::add_row(const std::vector<Markup>& cells, std::string_view tone) {
  rows_ += tone.empty() ? Markup{"<tr>"} : markup("<tr class=\"{}\">", tone);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Markup tag = {i == 0 ? "th scope=\"row\"" : "td"};
    rows_ += markup("<{}{}>{}", tag, class_of(i), cells[i]);
  }
  rows_ += {"\n"};
}

void Table::add_row(const std::vector<std::string>& cells, std::string_view tone) {
  std::vector<Markup> texts;
  for (const std::string& cell : cells) texts.push_back({escaped(cell)});
  add_row(texts, tone);
}

Markup Table::render() const {
  Markup headers;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    headers += markup("<th scope=\"col\"{}>{}</th>", class_of(i), columns_[i].header);
  const bool minor =
      std::any_of(columns_.begin(), columns_.end(), [](const Column& one) { return one.minor; });
  return markup(
      "<div "
      "class=\"scroll\">{}<table{}><caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></"
      "table></div>\n",
      Markup{minor ? "<label class=\"more\"><input type=\"checkbox\"> all columns</label>" : ""},
      sortable_ ? Markup{" class=\"sortable\""} : Markup{}, caption_, headers, rows_);
}

Markup Table::folded() const {
  return markup("<details><summary>The same as a table: {}</summary>\n{}</details>\n", caption_, render());
}

}  // namespace convtune::page
