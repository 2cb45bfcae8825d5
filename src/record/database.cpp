// The folder of records: which file a record lies in, and what to believe of a file that is there.
#include "convtune/database.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <tuple>

#include "base/flat_json.h"
#include "base/named_file.h"
#include "base/private_file.h"
#include "convtune/error.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRecords = 1'000'000;
constexpr std::size_t kMaxProblems = 20;  // per import, said in words
constexpr std::string_view kExtension = ".json";
constexpr WayOut kWayOut{"CONVTUNE_DATA_DIR", true};

// FNV-1a: only tells files apart; what is in a file is checked when it is read.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325u;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return value;
}

// "mb256ic3ih224oc96kh11sh4ph2-0123456789abcdef.json": the first part is for people.
std::string file_name(const ConvProblem& problem, const std::string& device) {
  constexpr std::size_t kMaxStem = 48;
  const std::string filed_under = key(problem);
  std::string stem = filed_under.substr(0, kMaxStem);
  for (char& c : stem)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'))) c = '_';
  return fmt::format("{}-{:016x}{}", stem, hash(filed_under + '\n' + device), kExtension);
}

bool is_name_of_ours(std::string_view name, std::string_view extension) {
  constexpr std::size_t kHashDigits = 16;
  if (!name.ends_with(extension)) return false;
  name.remove_suffix(extension.size());
  if (name.size() <= kHashDigits || name[name.size() - kHashDigits - 1] != '-') return false;
  return name.substr(name.size() - kHashDigits).find_first_not_of("0123456789abcdef") == name.npos;
}

bool is_record_name(std::string_view name) {
  return is_name_of_ours(name, kExtension);
}
// The trials of a search lie beside its record, as TrialLog names them.
bool is_trials_name(std::string_view name) {
  return is_name_of_ours(name, ".jsonl");
}

// The record of a file whose name says what it is of. One that `is_wanted` has the right name.
std::optional<Record> load(
    const PrivateFolder& folder, const std::string& name,
    const std::function<bool(const Record&)>& is_wanted = [](const Record&) { return false; }) {
  const std::optional<std::string> text = folder.read(name, FlatJson::kMaxBytes);
  if (!text) return std::nullopt;
  try {
    Record record = parse_record(*text);
    if (is_wanted(record) || file_name(record.problem, record.device) == name) return record;
    warn_once(folder.path() / name, "holds the record of another problem or device; it is not used");
  } catch (const Error& error) {
    warn_once(folder.path() / name, fmt::format("{}; it is not used", error.what()));
  }
  return std::nullopt;
}

std::optional<Record> find_in(const PrivateFolder& folder, const std::string& name,
                              const ConvProblem& problem, const std::string& device) {
  const auto is_wanted = [&](const Record& record) {
    return record.problem == problem && record.device == device;
  };
  std::optional<Record> record = load(folder, name, is_wanted);
  return record && is_wanted(*record) ? std::move(record) : std::nullopt;
}

// Stores the record where no own one `stays` in its place; whether it did.
template <typename Stays>
bool put(const PrivateFolder& folder, const Record& record, const Stays& stays) {
  const auto lock = folder.lock();  // so that nothing is compared with what is just being replaced
  const std::string name = file_name(record.problem, record.device);
  if (const auto own = find_in(folder, name, record.problem, record.device); own && stays(*own)) return false;
  folder.replace(name, to_json_line(record) + '\n');
  return true;
}

// Takes over the lines of a pack, one after the other.
class Importer {
 public:
  Importer(const fs::path& folder, std::string source) : path_(folder), source_(std::move(source)) {}

  void take(std::string_view line) {
    ++number_;
    if (line.find_first_not_of(" \t\r") == line.npos) return;
    if (++records_ > kMaxRecords)
      throw Error(
          ErrorKind::io,
          fmt::format("{}: has more than {} records; the first {} are looked at, {} of them imported; "
                      "split it for the others",
                      source_, kMaxRecords, kMaxRecords, result_.imported));
    Record record;
    try {
      record = parse_record(line);
    } catch (const Error& error) {
      ++result_.rejected;
      if (result_.problems.size() < kMaxProblems)
        result_.problems.push_back(fmt::format("{}:{}: {}", source_, number_, error.what()));
      return;
    }
    if (!folder_) folder_.emplace(PrivateFolder::create(path_, kWayOut));
    const bool stored =
        put(*folder_, record, [&](const Record& own) { return own.time_us <= record.time_us; });
    ++(stored ? result_.imported : result_.kept);
  }
  Database::ImportResult result() && { return std::move(result_); }

 private:
  fs::path path_;
  std::string source_;
  std::optional<PrivateFolder> folder_;  // not made for a pack without any record
  std::size_t records_ = 0, number_ = 0;
  Database::ImportResult result_;
};

}  // namespace

fs::path Database::default_folder() {
  // If it is empty every look-up is a miss, and store says what to set.
  return user_folder("CONVTUNE_DATA_DIR", "XDG_DATA_HOME", ".local/share");
}

Database::Database(fs::path folder) : folder_(std::move(folder)) {
  std::error_code ignored;  // an absolute path outlives a change of the working folder
  if (!folder_.empty())
    if (fs::path absolute = fs::absolute(folder_, ignored); !absolute.empty()) folder_ = std::move(absolute);
}

fs::path Database::path_of(const ConvProblem& problem, const std::string& device) const {
  return folder_ / file_name(problem, device);
}

std::optional<Record> Database::find(const ConvProblem& problem, const std::string& device) const {
  const auto folder = PrivateFolder::open(folder_, kWayOut);
  return folder ? find_in(*folder, file_name(problem, device), problem, device) : std::nullopt;
}

std::vector<Record> Database::list() const {
  std::vector<std::pair<std::string, Record>> found;  // with the text to sort by
  if (const auto folder = PrivateFolder::open(folder_, kWayOut)) {
    for (const std::string& name : folder->names()) {
      if (!is_record_name(name) || found.size() == kMaxRecords) continue;
      if (auto record = load(*folder, name)) {
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
  const PrivateFolder folder = PrivateFolder::create(folder_, kWayOut);
  const auto lock = folder.lock();  // so that no import compares with what is just being replaced
  folder.replace(file_name(record.problem, record.device), line);
}

bool Database::store_if_missing(const Record& record) const {
  return put(PrivateFolder::create(folder_, kWayOut), record, [](const Record&) { return true; });
}

std::int64_t Database::erase_all() const {
  std::int64_t erased = 0, failures = 0;
  std::string why;  // for the first
  const auto erase_in = [&](const PrivateFolder& folder, bool (*is_ours)(std::string_view)) {
    folder.remove_left_overs();
    std::int64_t count = 0;
    for (const std::string& name : folder.names()) {
      try {
        if (is_ours(name) && folder.remove(name)) ++count;
      } catch (const Error& error) {
        if (++failures == 1) why = error.what();
      }
    }
    return count;
  };
  if (const auto folder = PrivateFolder::open(folder_, kWayOut)) erased = erase_in(*folder, is_record_name);
  // The folder of the trials stays: a search that goes on writes into it.
  if (const auto folder = PrivateFolder::open(folder_ / "trials")) erase_in(*folder, is_trials_name);
  if (failures > 0)
    throw Error(ErrorKind::io,
                fmt::format("{}{}; everything else is deleted, {} records", why,
                            failures > 1 ? fmt::format(" (and {} more)", failures - 1) : "", erased));
  return erased;
}

bool Database::erase(const ConvProblem& problem, const std::string& device) const {
  const auto folder = PrivateFolder::open(folder_, kWayOut);
  return folder && folder->remove(file_name(problem, device));
}

std::string Database::pack() const {
  std::string lines;
  for (const Record& record : list()) lines += to_json_line(record) + '\n';
  return lines;
}

void Database::export_pack(const fs::path& file) const {
  const std::string lines = pack();
  if (file != "-") return write_named_file(file, lines);
  if (std::fwrite(lines.data(), 1, lines.size(), stdout) != lines.size() || std::fflush(stdout) != 0)
    throw Error(ErrorKind::io, "standard output: the records cannot be written");
}

Database::ImportResult Database::import_pack(const fs::path& file) const {
  NamedFileLines lines(file);
  Importer importer(folder_, file.string());
  for (std::string line; lines.next(line);) importer.take(line);
  return std::move(importer).result();
}

Database::ImportResult Database::import_lines(std::string_view lines, const std::string& source) const {
  Importer importer(folder_, source);
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    importer.take(lines.substr(at, end - at));
    at = end + 1;
  }
  return std::move(importer).result();
}

std::vector<std::string> Database::take_warnings() {
  return convtune::take_warnings();
}

}  // namespace convtune
