// See markup.h.
#include "page/markup.h"

namespace convtune::page {

std::string escaped(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string html;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == '&')
      html += "&amp;";
    else if (byte == '<')
      html += "&lt;";
    else if (byte == '>')
      html += "&gt;";
    else if (byte == '"')
      html += "&quot;";
    else if (byte == '\'')
      html += "&#39;";
    else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f)
      html += kReplacement;
    else if (byte == 0xc2 && next >= 0x80 && next <= 0x9f)  // U+0080 to U+009F
      html += kReplacement, ++i;
    else
      html += text[i];
  }
  return html;
}

Markup paragraph(std::string_view text) {
  return markup("<p>{}</p>\n", text);
}

Markup heading(int level, std::string_view text, std::string_view id) {
  return id.empty() ? markup("<h{0}>{1}</h{0}>\n", level, text)
                    : markup("<h{0} id=\"{2}\">{1}</h{0}>\n", level, text, id);
}

Markup bullets(const std::vector<std::string>& items) {
  Markup list;
  for (const std::string& item : items) list += markup("<li>{}</li>\n", item);
  return list.empty() ? list : markup("<ul>\n{}</ul>\n", list);
}

}  // namespace convtune::page
