// Suites: problem lines from the files that the build embedded, or from a file of the user's.
#include "convtune/cases.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/embedded.h"
#include "base/fork_gate.h"
#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/spelling.h"

namespace convtune {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
// Whatever `all` means is kept short, as it is waited for. The edges are for verifying: their timings say
// nothing.
constexpr std::string_view kAll[] = {"stem", "body", "depthwise"};
constexpr std::string_view kBlanks = " \t\r";

// The line up to a '#' that stands outside a name.
std::string_view without_comment(std::string_view line) {
  bool in_name = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') in_name = !in_name;
    if (line[i] == '#' && !in_name) return line.substr(0, i);
  }
  return line;
}

// benchdnn's input files set the types, directions and attributes of the lines that follow by options, and
// include other files by one of them. Nobody here would heed them.
void refuse_options(std::string_view line) {
  const std::size_t first = line.find("--");
  if (first == line.npos || line.find_first_not_of(kBlanks) != first) return;
  const std::string_view option = line.substr(first, line.find_first_of(kBlanks, first) - first);
  throw Error(ErrorKind::invalid_argument,
              fmt::format("benchdnn's option {} is not heeded{}", quoted(option),
                          option.starts_with("--batch=") ? "; give the file to --suite" : ""));
}

// A line that cannot be used is put into `left_out`, or thrown where that is null.
std::vector<ConvProblem> parse_lines(std::string_view text, const std::string& file,
                                     std::vector<std::string>* left_out) {
  std::vector<ConvProblem> problems;
  std::string first_reason;
  for (std::size_t number = 1, begin = 0; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = without_comment(text.substr(begin, end - begin));
    begin = end + 1;
    if (line.find_first_not_of(kBlanks) == line.npos) continue;
    try {
      refuse_options(line);
      problems.push_back(parse_problem(line));
    } catch (const Error& error) {
      const std::string reason = fmt::format("{}:{}: {}", file, number, error.what());
      if (!left_out) throw Error(error.kind(), reason);
      if (first_reason.empty()) first_reason = reason;
      left_out->push_back(reason);
    }
  }
  if (problems.empty())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} holds no problem{}", file,
                            first_reason.empty() ? "" : " that can be used; " + first_reason));
  return problems;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(ErrorKind::io, fmt::format("cannot read the suite file {}: {}", quoted(path, 200),
                                           std::generic_category().message(errno)));
  std::string text;
  std::vector<char> block(1 << 16);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxFileBytes)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("the suite file {} is over 64 MiB", quoted(path, 200)));
  }
  if (file.bad())
    throw Error(ErrorKind::io, fmt::format("reading the suite file {} failed", quoted(path, 200)));
  return text;
}

std::string name_of(const EmbeddedFile& file) {
  return std::string(file.name.substr(0, file.name.find('.')));
}

std::vector<ConvProblem> parse_lines(const EmbeddedFile& file) {
  return parse_lines(file.text, "cases/" + std::string(file.name), nullptr);
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const Suite& suite : suites())
    for (const ConvProblem& problem : suite.problems) names.push_back(problem.name);
  return names;
}

// Text with one of a line's fields in it, "ic3": no name was meant.
bool is_line(std::string_view text) {
  for (const std::string_view field : {"mb", "ic", "ih", "iw", "oc", "kh", "kw"})
    for (std::size_t at = 0; (at = text.find(field, at)) != text.npos; ++at)
      if (const std::size_t next = at + field.size();
          next < text.size() && '0' <= text[next] && text[next] <= '9')
        return true;
  return false;
}

}  // namespace

std::vector<std::string> suite_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_cases()) names.push_back(name_of(file));
  return names;
}

const std::vector<Suite>& suites() {
  return once([] {
    std::vector<Suite> result;
    for (const EmbeddedFile& file : embedded_cases()) {
      const std::string name = name_of(file);
      result.push_back({name, parse_lines(file), std::ranges::find(kAll, name) != std::end(kAll)});
    }
    return result;
  });
}

std::vector<ConvProblem> load_suite(const std::string& name_or_path, std::vector<std::string>* left_out) {
  std::vector<ConvProblem> problems;
  for (const Suite& suite : suites())
    if (suite.name == name_or_path || (name_or_path == "all" && suite.in_all))
      problems.insert(problems.end(), suite.problems.begin(), suite.problems.end());
  if (!problems.empty()) return problems;

  std::error_code ignored;
  if (!std::filesystem::exists(name_or_path, ignored) ||
      std::filesystem::is_directory(name_or_path, ignored)) {
    std::vector<std::string> names = suite_names();
    names.push_back("all");
    const std::string meant = did_you_mean(name_or_path, names);
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("{} is neither a suite ({}) nor a file with problems{}{}", quoted(name_or_path, 200),
                    fmt::join(names, ", "), meant.empty() ? "" : "; ", meant));
  }
  return parse_lines(read_file(name_or_path), name_or_path, left_out);
}

ConvProblem find_problem(std::string_view name_or_text) {
  // Among all suites only one that has the name is parsed.
  const std::string named = fmt::format("\"{}\"", name_or_text);
  for (const EmbeddedFile& file : embedded_cases())
    if (file.text.find(named) != file.text.npos)
      for (ConvProblem& problem : parse_lines(file))
        if (problem.name == name_or_text) return std::move(problem);
  try {
    return parse_problem(name_or_text);
  } catch (const Error& error) {
    if (const std::string meant = did_you_mean(name_or_text, case_names()); !meant.empty())
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("no case is named {}; {}", quoted(name_or_text), meant));
    if (name_or_text.empty() || is_line(name_or_text)) throw;
    throw Error(error.kind(), fmt::format("{}; nor is it the name of a case", error.what()));
  }
}

}  // namespace convtune
