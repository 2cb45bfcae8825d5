// The folder of records: which file a record lies in, and what to believe of a file that is there.
#include "convtune/database.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "convtune/error.h"
#include "flat_json.h"
#include "private_file.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRecords = 1'000'000;
constexpr std::size_t kMaxProblems = 20;  // of an import, said in words
constexpr std::string_view kExtension = ".json";

// FNV-1a: only tells files apart; what is in a file is checked when it is read.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return value;
}

// "mb256ic3ih224oc96kh11sh4ph2-0123456789abcdef.json": the first part is for people.
std::string file_name(const Conv2dProblem& problem, const std::string& device) {
  constexpr std::size_t kMaxStem = 48;
  const std::string filed_under = key(problem);
  std::string stem = filed_under.substr(0, kMaxStem);
  for (char& c : stem)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) c = '_';
  return fmt::format("{}-{:016x}{}", stem, hash(filed_under + '\n' + device), kExtension);
}

bool is_record_name(std::string_view name) {
  constexpr std::size_t kHashDigits = 16;
  if (!name.ends_with(kExtension)) return false;
  name.remove_suffix(kExtension.size());
  if (name.size() <= kHashDigits || name[name.size() - kHashDigits - 1] != '-') return false;
  return name.substr(name.size() - kHashDigits).find_first_not_of("0123456789abcdef") == name.npos;
}

std::optional<Record> load(const PrivateFolder& folder, const fs::path& path) {
  const std::string name = path.filename().string();
  const std::optional<std::string> text = folder.read(name, FlatJson::kMaxBytes);
  if (!text) return std::nullopt;
  try {
    Record record = parse_record(*text);
    if (file_name(record.problem, record.device) == name) return record;
    warn_once(path, "holds the record of another problem or device; it is not used");
  } catch (const Error& error) {
    warn_once(path, fmt::format("{}; it is not used", error.what()));
  }
  return std::nullopt;
}

}  // namespace

fs::path Database::default_folder() {
  // Where it is empty every look-up is a miss, and store says what to set.
  return user_folder("CONVTUNE_DATA_DIR", "XDG_DATA_HOME", ".local/share");
}

Database::Database(fs::path folder) : folder_(std::move(folder)) {
  std::error_code ignored;  // an absolute path outlives a change of the working folder
  if (!folder_.empty())
    if (fs::path absolute = fs::absolute(folder_, ignored); !absolute.empty()) folder_ = std::move(absolute);
}

fs::path Database::path_of(const Conv2dProblem& problem, const std::string& device) const {
  return folder_ / file_name(problem, device);
}

std::optional<Record> Database::find(const Conv2dProblem& problem, const std::string& device) const {
  const auto folder = PrivateFolder::open(folder_);
  if (!folder) return std::nullopt;
  std::optional<Record> record = load(*folder, path_of(problem, device));
  if (record && record->problem == problem && record->device == device) return record;
  return std::nullopt;
}

std::vector<Record> Database::list() const {
  std::vector<std::pair<std::string, Record>> found;  // with the text to sort by
  if (const auto folder = PrivateFolder::open(folder_)) {
    for (const std::string& name : folder->names()) {
      if (!is_record_name(name) || found.size() == kMaxRecords) continue;
      if (auto record = load(*folder, folder_ / name)) {
        std::string text = to_string(record->problem);
        found.emplace_back(std::move(text), *std::move(record));
      }
    }
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::tie(a.second.device, a.first) < std::tie(b.second.device, b.first);
  });
  std::vector<Record> records;
  for (auto& [text, record] : found) records.push_back(std::move(record));
  return records;
}

void Database::store(const Record& record) const {
  const std::string line = to_json_line(record) + '\n';
  PrivateFolder::create(folder_).replace(file_name(record.problem, record.device), line);
}

std::int64_t Database::erase_all() const {
  std::int64_t erased = 0;
  const auto folder = PrivateFolder::open(folder_);
  if (!folder) return 0;
  for (const std::string& name : folder->names()) {
    if (PrivateFolder::is_left_over(name)) folder->remove(name);
    if (is_record_name(name) && folder->remove(name)) ++erased;
  }
  return erased;
}

bool Database::erase(const Conv2dProblem& problem, const std::string& device) const {
  const auto folder = PrivateFolder::open(folder_);
  return folder && folder->remove(file_name(problem, device));
}

void Database::export_pack(const fs::path& file) const {
  std::string lines;
  for (const Record& record : list()) lines += to_json_line(record) + '\n';
  if (file != "-") return write_named_file(file, lines);
  if (std::fwrite(lines.data(), 1, lines.size(), stdout) != lines.size() || std::fflush(stdout) != 0)
    throw Error(ErrorKind::io, "standard output: the records cannot be written");
}

Database::ImportResult Database::import_pack(const fs::path& file) const {
  const std::string text = read_named_file(file);
  std::vector<std::pair<std::size_t, std::string_view>> lines;  // numbered, without the blank ones
  for (std::size_t begin = 0, number = 1; begin < text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != line.npos) lines.emplace_back(number, line);
    begin = end + 1;
  }
  if (lines.size() > kMaxRecords)
    throw Error(ErrorKind::io, fmt::format("{}: has {} records; at most {} are imported at once, so split it",
                                           file.string(), lines.size(), kMaxRecords));
  ImportResult result;
  for (const auto& [number, line] : lines) {
    Record record;
    try {
      record = parse_record(line);
    } catch (const Error& error) {
      ++result.rejected;
      if (result.problems.size() < kMaxProblems)
        result.problems.push_back(fmt::format("{}:{}: {}", file.string(), number, error.what()));
      continue;
    }
    if (const auto own = find(record.problem, record.device); own && own->time_us <= record.time_us) {
      ++result.kept;
    } else {
      store(record);
      ++result.imported;
    }
  }
  return result;
}

std::vector<std::string> Database::take_warnings() {
  return convtune::take_warnings();
}

}  // namespace convtune
