// Tables that `ncu --csv` prints: the raw page, a line a launch under lines of names and of units, or the
// details page, a line a metric. The program's own lines may stand before the table and within it.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/quoted.h"
#include "profile/lines.h"
#include "profile/readers.h"

namespace convtune {
namespace {

Error bad_table(const std::string& why) {
  return Error(ErrorKind::invalid_argument, "ncu's table: " + why);
}

constexpr int kMostLines = 64;  // per rule's text

using Fields = std::vector<std::string>;

// a,"b ""c""": all of a line. Nothing where it is no such line; `open` where a quoted field does not end.
std::optional<Fields> fields_of(std::string_view line, bool& open) {
  Fields fields;
  open = false;
  for (std::size_t i = 0;; ++i) {
    std::string field;
    if (i < line.size() && line[i] == '"') {
      for (++i; i < line.size() && (line[i] != '"' || line.substr(i, 2) == "\"\""); ++i) {
        if (line[i] == '"') ++i;
        field += line[i];
      }
      if (i >= line.size()) {
        open = true;
        return std::nullopt;
      }
      ++i;
    } else {
      for (; i < line.size() && line[i] != ','; ++i) {
        if (line[i] == '"') return std::nullopt;
        field += line[i];
      }
    }
    fields.push_back(std::move(field));
    if (i >= line.size()) return fields;
    if (line[i] != ',') return std::nullopt;
  }
}

std::optional<std::size_t> column(const Fields& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - names.begin()));
}

// The names of a table's columns, where the line has them.
std::optional<Fields> head_of(std::string_view line) {
  if (line.find("Kernel Name") == line.npos && line.find("Function Name") == line.npos &&
      line.find("Metric Name") == line.npos)
    return std::nullopt;
  bool open = false;
  auto names = fields_of(line, open);
  if (!names || names->size() < 2) return std::nullopt;
  for (const std::string_view name : {"Kernel Name", "Function Name", "Metric Name"})
    if (column(*names, name)) return names;
  return std::nullopt;
}

class TableReader {
 public:
  explicit TableReader(RawProfile& profile) : profile_(profile) {}

  bool began() const { return !names_.empty(); }
  // True for a line of this table: its fields are quoted as its head's are.
  bool owns(std::string_view line) const {
    return began() && !line.empty() && line.starts_with('"') == quoted_;
  }

  void begin(Fields names, bool quoted) {
    names_ = std::move(names), quoted_ = quoted, units_.clear(), launch_.clear();
    kernel_ = column(names_, "Kernel Name");
    if (!kernel_) kernel_ = column(names_, "Function Name");
    if (!kernel_) throw bad_table("it has no column \"Kernel Name\"");
    id_ = column(names_, "ID");
    metric_ = column(names_, "Metric Name"), unit_ = column(names_, "Metric Unit");
    value_ = column(names_, "Metric Value");
    if (!value_) value_ = column(names_, "Average");  // the column of --print-summary
    if (metric_ && !value_) throw bad_table("it has no column \"Metric Value\"");
    metrics_.clear();
    for (std::size_t i = 0; i < names_.size(); ++i)
      if (names_[i].find("__") != std::string::npos || is_display_name(names_[i])) metrics_.push_back(i);
  }

  void line(const Fields& fields, std::string_view text) {
    // The details page leaves out the columns of a rule behind a metric.
    std::size_t least = names_.size();
    if (metric_) least = std::max({*metric_, *value_, *kernel_, id_.value_or(0), unit_.value_or(0)}) + 1;
    if (fields.size() < least || fields.size() > names_.size())
      throw bad_table(fmt::format("a line has {} fields, and the first has {}: {}", fields.size(),
                                  names_.size(), convtune::quoted(text)));
    if (metric_) return metric_line(fields);
    if (units_.empty()) {
      if (!fields[id_.value_or(*kernel_)].empty())
        throw bad_table("its second line must be that of the units");
      units_ = fields;
      return;
    }
    profile_.launch(fields[*kernel_]);
    for (const std::size_t i : metrics_) profile_.add(names_[i], units_[i], fields[i]);
  }

 private:
  void metric_line(const Fields& fields) {
    const std::string launch = fields[*kernel_] + '\n' + (id_ ? fields[*id_] : "");
    if (launch != launch_) {
      profile_.launch(fields[*kernel_]);
      for (const std::size_t i : metrics_)  // the launch's sizes
        if (i < fields.size()) profile_.add(names_[i], "", fields[i]);
    }
    launch_ = launch;
    profile_.add(fields[*metric_], unit_ ? fields[*unit_] : "", fields[*value_]);
  }

  RawProfile& profile_;
  Fields names_, units_;
  bool quoted_ = true;
  std::optional<std::size_t> kernel_, id_, metric_, unit_, value_;
  std::vector<std::size_t> metrics_;  // columns
  std::string launch_;                // the details page's last
};

}  // namespace

bool has_table(std::string_view output) {
  while (!output.empty())
    if (head_of(take_line(output))) return true;
  return false;
}

NcuOutput read_table(std::string_view output) {
  NcuOutput answer{RawProfile("ncu's table", true)};
  TableReader table(answer.profile);
  while (!output.empty()) {
    const std::string_view line = take_line(output);
    if (line.starts_with("==")) {  // "==ERROR== text", "==PROF== Connected to process 7"
      const std::size_t word = line.find("== ", 2);
      if (word != line.npos && (line.starts_with("==ERROR==") || line.starts_with("==WARNING==")))
        answer.messages.push_back(fmt::format("{}: {}", line.substr(2, word - 2), line.substr(word + 3)));
    } else if (auto names = head_of(line)) {
      table.begin(std::move(*names), line.starts_with('"'));
    } else if (table.owns(line)) {
      bool open = false;
      std::string whole(line);
      auto fields = fields_of(whole, open);
      for (int more = 0; open && !output.empty() && more < kMostLines; ++more) {
        whole += '\n';
        whole += take_line(output);
        fields = fields_of(whole, open);
      }
      if (!fields) throw bad_table("this is no line of its fields: " + convtune::quoted(line));
      table.line(*fields, line);
    } else if (!line.empty()) {
      answer.others.emplace_back(line);
    }
  }
  return answer;
}

}  // namespace convtune
