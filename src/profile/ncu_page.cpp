// ncu's pages as text, as a terminal shows them: a line that names a launch, and below it sections with a
// metric a line, among advice in sentences and what the program printed.
#include <algorithm>

#include "profile/lines.h"
#include "profile/readers.h"

namespace convtune {
namespace {

constexpr std::string_view kUnnamed = "unnamed kernel";  // per page whose first line was not copied

bool is_numeric(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](char c) { return (c >= '0' && c <= '9') || c == '.' || c == ','; });
}

struct Launch {
  std::string kernel, grid, block;  // sizes as "(64, 1, 1)"; empty where the line has none
};

// "name (64, 18, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.6"; older: "name, 2024-Aug-28 11:14:50,
// Context 1, Stream 7"; of a summary: "name, Device 0, CC 8.6, Invocations 3".
bool parse_launch(std::string_view line, Launch& launch) {
  line = trimmed(line);
  std::size_t end = line.find(", Context ");
  if (end != line.npos && line.find(", Stream ", end) == line.npos) end = line.npos;
  if (end == line.npos && line.find(", Invocations ") != line.npos) end = line.find(", Device ");
  if (end == line.npos || end == 0) return false;
  std::string_view head = line.substr(0, end);
  if (const std::size_t times = head.rfind(")x("); head.ends_with(')') && times != head.npos) {
    launch.block = head.substr(times + 2);
    const std::size_t grid = head.substr(0, times).rfind('(');
    if (grid == head.npos || grid == 0) return false;
    launch.grid = head.substr(grid, times + 1 - grid);
    head = head.substr(0, grid);
  } else if (const std::size_t date = head.rfind(", "); date != head.npos && date + 5 < head.size() &&
                                                        is_numeric(head.substr(date + 2, 4)) &&
                                                        head[date + 6] == '-') {
    head = head.substr(0, date);
  }
  launch.kernel = trimmed(head);
  return !launch.kernel.empty();
}

bool is_section(std::string_view line) {
  return trimmed(line).starts_with("Section: ");
}

// "Registers Per Thread    register/thread    111": the last of the words is the value, or the average of a
// summary. Words that somebody wrote behind a # are none of ncu's.
void metric_line(std::string_view line, RawProfile& profile) {
  line = trimmed(line);
  line = trimmed(line.substr(0, line.find(" #")));
  const std::size_t name = leading_name(line);
  std::vector<std::string_view> words;
  for (std::string_view rest = trimmed(line.substr(name)); !rest.empty();) {
    words.push_back(rest.substr(0, rest.find(' ')));
    rest = trimmed(rest.substr(words.back().size()));
  }
  if (words.size() == 2 && is_numeric(words[0])) std::swap(words[0], words[1]);  // as people write it
  if (words.empty() || !is_numeric(words.back())) return;
  if (name == 0) return profile.add("", "", words.back());  // says in which language the numbers are
  if (!std::all_of(words.begin() + 1, words.end(), is_numeric)) return;  // a sentence
  profile.add(line.substr(0, name), is_numeric(words[0]) ? "" : words[0], words.back());
}

}  // namespace

bool has_page(std::string_view output) {
  Launch launch;
  while (!output.empty())
    if (const std::string_view line = take_line(output); is_section(line) || parse_launch(line, launch))
      return true;
  return false;
}

NcuOutput read_page(std::string_view output) {
  NcuOutput answer{RawProfile("ncu's page", true)};
  while (!output.empty()) {
    const std::string_view line = take_line(output);
    Launch launch;
    if (parse_launch(line, launch)) {
      answer.profile.launch(launch.kernel);
      if (!launch.grid.empty()) answer.profile.add("Grid Size", "", launch.grid);
      if (!launch.block.empty()) answer.profile.add("Block Size", "", launch.block);
    } else if (is_section(line)) {
      if (answer.profile.empty()) answer.profile.launch(std::string(kUnnamed));
    } else if (!answer.profile.empty()) {
      metric_line(line, answer.profile);
    }
  }
  return answer;
}

}  // namespace convtune
