// HTML as a type of its own, so that foreign text cannot become part of it: markup("<p>{}</p>", text) escapes
// every text that it is given, and lets through what is markup already.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace convtune::page {

struct Markup {
  std::string html;

  bool empty() const { return html.empty(); }
  Markup& operator+=(const Markup& more) {
    html += more.html;
    return *this;
  }
};

// As text between tags or in a quoted attribute. Control characters become U+FFFD, as HTML has none.
std::string escaped(std::string_view text);

template <typename T>
decltype(auto) as_argument(const T& value) {
  if constexpr (std::is_same_v<T, Markup>)
    return std::string_view(value.html);
  else if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return escaped(value);
  else
    return value;
}

// The format is ours; the arguments need not be.
template <typename... Args>
Markup markup(std::string_view format, const Args&... args) {
  return {fmt::format(fmt::runtime(format), as_argument(args)...)};
}

// <p>, <h3 id="...">
Markup paragraph(std::string_view text);
Markup heading(int level, std::string_view text, std::string_view id = {});
// <ul>; nothing for no items.
Markup bullets(const std::vector<std::string>& items);

}  // namespace convtune::page
