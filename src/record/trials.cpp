// The log of a search: a line where a trial begins and one where it ends, appended as it happens, read back
// when a search resumes.
#include "record/trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "base/flat_json.h"
#include "base/private_file.h"
#include "base/process_identity.h"
#include "convtune/database.h"
#include "convtune/error.h"

namespace convtune {
namespace {

using Event = TrialEntry::Event;

constexpr std::int64_t kTrialSchema = 2;  // before it, marks said not whose they were
constexpr double kMaxNumber = 1e12;
constexpr std::int64_t kMaxSeconds = std::int64_t{1} << 40;
// No trial takes as long: what began so long ago where processes cannot be seen from here (on another
// machine, in another container, before the machine was started again) is dead.
constexpr std::int64_t kLongSeconds = 3600;

constexpr std::pair<Event, std::string_view> kEvents[] = {{Event::result, "result"},
                                                          {Event::start, "start"},
                                                          {Event::end, "end"},
                                                          {Event::left_out, "left_out"},
                                                          {Event::retune, "retune"}};

bool same_work(const Trial& a, const Trial& b) {
  return a.algorithm == b.algorithm && a.kernel_hash == b.kernel_hash && a.config == b.config;
}

Trial work(const std::string& algorithm, const Config& config, const std::string& kernel_hash) {
  return {algorithm, config, kernel_hash, 0, 0, {}};
}

TrialEntry parse_entry(std::string_view line) {
  FlatJson json(line, "trial");
  json.take_integer("schema", kTrialSchema, kTrialSchema);
  const std::string word = json.take_word("event");
  const auto named = std::find_if(std::begin(kEvents), std::end(kEvents),
                                  [&](const auto& event) { return event.second == word; });
  if (named == std::end(kEvents)) json.fail("event", "is none that is known");
  TrialEntry entry;
  entry.event = named->first;
  if (entry.event != Event::retune) {
    entry.trial.algorithm = json.take_word("algorithm");
    entry.trial.config = parse_config(json.take_text("config"));
    entry.trial.kernel_hash = json.take_word("kernel_hash");
  }
  if (entry.event == Event::result) {
    entry.trial.time_us = json.take_number("time_us", 0, kMaxNumber);
    entry.trial.max_error = json.take_number("max_error", 0, kMaxNumber);
    entry.trial.failure = json.take_text("failure");
  }
  if (entry.event == Event::start) {
    entry.process = json.take_word("process");
    entry.unix_seconds = json.take_integer("unix_seconds", 0, kMaxSeconds);
  }
  json.finish();
  return entry;
}

// A failure is told in words from anywhere (a compiler, a driver): made fit for a line of text.
std::string one_line(std::string text) {
  constexpr std::size_t kMaxBytes = 1000;
  if (text.size() > kMaxBytes) text.resize(kMaxBytes);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
  return text;
}

std::string to_line(const TrialEntry& entry) {
  Trial trial = entry.trial;
  if (!trial.failure.empty()) {  // whose numbers mean nothing, and are often not finite
    trial.failure = one_line(std::move(trial.failure));
    trial.time_us = trial.max_error = 0;
  }
  const auto* const named = std::find_if(std::begin(kEvents), std::end(kEvents),
                                         [&](const auto& event) { return event.first == entry.event; });
  nlohmann::ordered_json json = {{"schema", kTrialSchema}, {"event", named->second}};
  if (entry.event != Event::retune) {
    json["algorithm"] = trial.algorithm;
    json["config"] = to_string(trial.config);
    json["kernel_hash"] = trial.kernel_hash;
  }
  if (entry.event == Event::result) {
    json["time_us"] = trial.time_us;
    json["max_error"] = trial.max_error;
    json["failure"] = trial.failure;
  }
  if (entry.event == Event::start) {
    json["process"] = entry.process;
    json["unix_seconds"] = entry.unix_seconds;
  }
  std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  parse_entry(line);  // an entry that could not be read back is not written
  return line;
}

std::vector<TrialEntry> read_entries(const std::filesystem::path& path) {
  std::vector<TrialEntry> entries;
  const auto folder = PrivateFolder::open(path.parent_path());
  const auto text = folder ? folder->read(path.filename().string(), kMaxFileBytes) : std::nullopt;
  if (!text) return entries;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    try {
      if (end > begin) entries.push_back(parse_entry(std::string_view(*text).substr(begin, end - begin)));
    } catch (const Error&) {
      // Cut short by a kill or a full disk, or of another version: that trial is made again.
    }
    begin = end + 1;
  }
  return entries;
}

// A clock that stands before 1970 (a board without a battery) is taken for the beginning of its count.
std::int64_t unix_seconds_now() {
  return std::clamp(static_cast<std::int64_t>(std::time(nullptr)), std::int64_t{0}, kMaxSeconds);
}

bool died(const TrialEntry& start) {
  const Life life = life_of(start.process);
  return life == Life::dead ||
         (life == Life::unknown && unix_seconds_now() - start.unix_seconds > kLongSeconds);
}

}  // namespace

TrialLog::TrialLog(const std::filesystem::path& folder, const ConvProblem& problem,
                   const std::string& device) {
  const Database database(folder);
  if (database.folder().empty()) {  // there is no home folder: storing the record says so
    writable_ = false;
    return;
  }
  path_ =
      database.folder() / "trials" / database.path_of(problem, device).filename().replace_extension(".jsonl");
  entries_ = read_entries(path_);
}

const Trial* TrialLog::find(const std::string& algorithm, const Config& config,
                            const std::string& kernel_hash) const {
  const Trial asked = work(algorithm, config, kernel_hash);
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(), [&](const TrialEntry& entry) {
    return entry.event == Event::result && same_work(entry.trial, asked);
  });
  return found == entries_.rend() ? nullptr : &found->trial;
}

std::vector<Trial> TrialLog::results() const {
  std::vector<Trial> last;
  for (const TrialEntry& entry : entries_) {
    if (entry.event != Event::result) continue;
    std::erase_if(last, [&](const Trial& one) { return same_work(one, entry.trial); });
    if (entry.trial.failure.empty()) last.push_back(entry.trial);
  }
  return last;
}

TrialLog::Deaths TrialLog::deaths(const std::string& algorithm, const Config& config,
                                  const std::string& kernel_hash) const {
  const Trial asked = work(algorithm, config, kernel_hash);
  // Who is dead before the file is read again has written there all that it ever will.
  std::set<std::string> dead;
  for (const TrialEntry& entry : entries_)
    if (entry.event == Event::start && same_work(entry.trial, asked) && died(entry))
      dead.insert(entry.process);
  if (dead.empty()) return {};
  std::set<std::string> died_of_it;
  int left_out = 0;
  for (const TrialEntry& entry : read_entries(path_)) {
    if (!same_work(entry.trial, asked)) continue;
    if (entry.event == Event::start && dead.contains(entry.process)) {
      died_of_it.insert(entry.process);
      left_out = 0;
    }
    if (entry.event == Event::left_out) ++left_out;
    if (entry.event == Event::result || entry.event == Event::end) died_of_it.clear();
  }
  return {static_cast<int>(died_of_it.size()), left_out};
}

bool TrialLog::append(const Trial& result) {
  return append({Event::result, result, {}, 0});
}

bool TrialLog::start(const std::string& algorithm, const Config& config, const std::string& kernel_hash) {
  return append({Event::start, work(algorithm, config, kernel_hash), process_identity(), unix_seconds_now()});
}

bool TrialLog::end(const std::string& algorithm, const Config& config, const std::string& kernel_hash) {
  return append({Event::end, work(algorithm, config, kernel_hash), {}, 0});
}

bool TrialLog::leave_out(const std::string& algorithm, const Config& config, const std::string& kernel_hash) {
  return append({Event::left_out, work(algorithm, config, kernel_hash), {}, 0});
}

bool TrialLog::append(TrialEntry entry) {
  const std::string line = to_line(entry);
  entries_.push_back(std::move(entry));
  if (!writable_) return false;
  try {
    PrivateFolder::create(path_.parent_path()).append_line(path_.filename().string(), line);
  } catch (const Error& error) {
    writable_ = false;
    warn_once(path_, error, "the search goes on, but cannot be resumed");
  }
  return writable_;
}

void TrialLog::begin_anew(bool keep) {
  if (begun_anew()) return;
  entries_.clear();
  if (!keep) return;
  replace();  // by nothing
  append({Event::retune, {}, {}, 0});
}

bool TrialLog::begun_anew() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const TrialEntry& entry) { return entry.event == Event::retune; });
}

void TrialLog::finish(bool proven) {
  // Read again, for what other processes have found out meanwhile.
  if (writable_) entries_ = read_entries(path_);
  const std::string own = process_identity();
  std::vector<TrialEntry> kept;
  for (const TrialEntry& entry : entries_) {
    const bool result = entry.event == Event::result;
    if (result || entry.event == Event::end)  // an end leaves the results of before
      std::erase_if(kept, [&](const TrialEntry& one) {
        return same_work(one.trial, entry.trial) && (result || one.event != Event::result);
      });
    const bool worth = result                        ? !proven || !entry.trial.failure.empty()
                       : entry.event == Event::start ? entry.process != own
                                                     : entry.event == Event::left_out;
    if (worth) kept.push_back(entry);
  }
  entries_ = std::move(kept);
  replace();
}

void TrialLog::replace() {
  const auto folder = PrivateFolder::open(path_.parent_path());
  if (!folder || !writable_) return;
  std::string lines;
  for (const TrialEntry& entry : entries_) lines += to_line(entry) + '\n';
  try {
    if (lines.empty())
      folder->remove(path_.filename().string());
    else
      folder->replace(path_.filename().string(), lines);
  } catch (const Error& error) {
    warn_once(path_, error, "what was tried is not tidied up");
  }
}

}  // namespace convtune
