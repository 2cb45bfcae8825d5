// A table of a page: a caption, headers with scopes, numbers to the right. `sortable` ones get buttons from
// the page's script, where one runs.
#pragma once

#include <string>
#include <vector>

#include "page/markup.h"

namespace convtune::page {

class Table {
 public:
  struct Column {
    std::string header;
    bool number = false;
    bool minor = false;  // left out on a narrow screen, until it is asked for
  };

  Table(std::string caption, std::vector<Column> columns, bool sortable = false)
      : caption_(std::move(caption)), columns_(std::move(columns)), sortable_(sortable) {}

  // The first cell is the row's header. `tone`: a class of the style sheet's, "own" or "bad".
  void add_row(const std::vector<Markup>& cells, std::string_view tone = {});
  void add_row(const std::vector<std::string>& cells, std::string_view tone = {});
  bool empty() const { return rows_.empty(); }
  Markup render() const;
  // Folded until it is asked for: numbers of a chart that stands beside it.
  Markup folded() const;

 private:
  Markup class_of(std::size_t column) const;

  std::string caption_;
  std::vector<Column> columns_;
  bool sortable_;
  Markup rows_;
};

}  // namespace convtune::page
