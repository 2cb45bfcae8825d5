// report_page(): the frame of a page, its title and where the numbers are from. Nothing is fetched: the style
// sheet and the script stand in the page, and its policy lets those two alone through, by their hashes.
#include <algorithm>

#include "base/embedded.h"
#include "base/sha256.h"
#include "convtune/error.h"
#include "page/labels.h"
#include "page/sections.h"

namespace convtune {
namespace page {
namespace {

std::string_view embedded(std::string_view name) {
  for (const EmbeddedFile& file : embedded_pages())
    if (file.name == name) return file.text;
  throw Error(ErrorKind::internal, fmt::format("there is no {} in the program", name));
}

// The name of a text in a content security policy: 'sha256-BASE64'.
std::string hash_source(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const std::string hex = sha256(text);
  std::string base64;
  unsigned bits = 0;
  int count = 0;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bits = bits << 8 | static_cast<unsigned>(std::stoi(hex.substr(i, 2), nullptr, 16));
    for (count += 8; count >= 6; count -= 6) base64 += kDigits[bits >> (count - 6) & 63];
    bits &= (1u << count) - 1;
  }
  if (count > 0) base64 += kDigits[bits << (6 - count) & 63];
  while (base64.size() % 4 != 0) base64 += '=';
  return fmt::format("'sha256-{}'", base64);
}

std::string kind_of(const Report& report) {
  if (const auto* rows = std::get_if<std::vector<ReportRow>>(&report.content)) {
    const bool tuned =
        std::any_of(rows->begin(), rows->end(), [](const ReportRow& row) { return row.tuning.has_value(); });
    std::string subject = fmt::format("{} cases", rows->size());
    if (rows->size() == 1) subject = case_name(rows->front().comparison.problem);
    return fmt::format("{} {}", tuned ? "Tuning of" : "Measurement of", subject);
  }
  if (std::holds_alternative<VerifyReport>(report.content)) return "Verification";
  if (const auto* refined = std::get_if<Refined>(&report.content))
    return refined->kernels.size() == 1 ? "Refinement of " + refined->kernels.front().kernel
                                        : std::string("Refinement");
  if (const auto* analyzed = std::get_if<Analyzed>(&report.content))
    return analyzed->kernels.size() == 1 ? "Analysis of " + analyzed->kernels.front().metrics.kernel
                                         : fmt::format("Analysis of {} kernels", analyzed->kernels.size());
  return "Convolutions of a model";
}

std::string title_of(const Report& report) {
  const std::string& device = report.environment.device.name;
  return kind_of(report) + (device.empty() ? "" : " on " + device);
}

Markup environment(const ReportEnvironment& from) {
  Markup list;
  const auto add = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) list += markup("<dt>{}</dt><dd>{}</dd>\n", name, value);
  };
  add("device", from.device.name);
  add("fingerprint", from.device.fingerprint);
  add("CPU threads", fmt::format("{}", from.threads));
  for (const auto& [what, version] : from.versions) add(what, version);
  add("date", from.date);
  if (!from.command.empty()) list += markup("<dt>command</dt><dd><code>{}</code></dd>\n", from.command);
  return markup("<details><summary>Device, versions, date and command</summary>\n<dl>\n{}</dl></details>\n",
                list);
}

Markup contents(const Report& report, const Place& place) {
  Markup html;
  if (report.interrupted)
    html += markup("<p class=\"verdict\">Interrupted: the numbers are those of what was done.</p>\n");
  html += std::visit([&](const auto& content) { return section(content, report.environment, place); },
                     report.content);
  html += environment(report.environment);
  return html;
}

}  // namespace
}  // namespace page

std::string report_page(const std::vector<Report>& reports) {
  using namespace page;  // NOLINT: this function is its face
  if (reports.empty()) throw Error(ErrorKind::invalid_argument, "a page needs a report");
  const std::string title =
      reports.size() == 1 ? title_of(reports.front()) : fmt::format("{} reports of convtune", reports.size());
  Markup body = heading(1, title);
  if (reports.size() == 1) {
    body += contents(reports.front(), {"r1", 2});
  } else {
    Markup links;
    for (std::size_t i = 0; i < reports.size(); ++i)
      links += markup("<li><a href=\"#r{}\">{}</a></li>\n", i + 1, title_of(reports[i]));
    body += markup("<nav aria-label=\"Reports\"><ol>\n{}</ol></nav>\n", links);
    for (std::size_t i = 0; i < reports.size(); ++i) {
      const std::string id = fmt::format("r{}", i + 1);
      body += heading(2, title_of(reports[i]), id);
      body += contents(reports[i], {id, 3});
    }
  }
  const std::string_view style = embedded("page.css"), script = embedded("sort.js");
  return markup(
             "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src {0}; "
             "script-src {1}; "
             "base-uri 'none'; form-action 'none'\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n<title>{2}</title>\n"
             "<style>{3}</style>\n</head>\n<body>\n<main>\n{4}</main>\n<script>{5}</script>\n</body>\n</"
             "html>\n",
             Markup{hash_source(style)}, Markup{hash_source(script)}, title, Markup{std::string(style)}, body,
             Markup{std::string(script)})
      .html;
}

}  // namespace convtune
