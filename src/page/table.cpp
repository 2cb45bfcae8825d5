// See table.h. Ends of cells and rows are left out, as HTML allows: a page has thousands of them.
#include "page/table.h"

namespace convtune::page {

void Table::add_row(const std::vector<Markup>& cells, std::string_view tone) {
  rows_ += tone.empty() ? Markup{"<tr>"} : markup("<tr class=\"{}\">", tone);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const Markup tag = {i == 0 ? "th scope=\"row\"" : "td"};
    rows_ += markup("<{}{}>{}", tag, Markup{columns_.at(i).number ? " class=\"n\"" : ""}, cells[i]);
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
  for (const Column& column : columns_)
    headers += markup("<th scope=\"col\"{}>{}</th>", column.number ? Markup{" class=\"n\""} : Markup{},
                      column.header);
  return markup(
      "<div "
      "class=\"scroll\"><table{}><caption>{}</caption>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></"
      "table></div>\n",
      sortable_ ? Markup{" class=\"sortable\""} : Markup{}, caption_, headers, rows_);
}

Markup Table::folded() const {
  return markup("<details><summary>The same as a table: {}</summary>\n{}</details>\n", caption_, render());
}

}  // namespace convtune::page
