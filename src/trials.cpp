// The log of a search: a line a trial, appended as it is made, read back when a search resumes.
#include "trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "convtune/database.h"
#include "convtune/error.h"
#include "flat_json.h"
#include "private_file.h"

namespace convtune {
namespace {

constexpr std::int64_t kSchema = 1;
constexpr double kMaxNumber = 1e12;

// In the place of a failure, of a trial that has begun.
constexpr std::string_view kStarted = "started, and not finished yet";

bool is_start(const Trial& trial) {
  return trial.failure == kStarted;
}

bool same_work(const Trial& a, const Trial& b) {
  return a.algorithm == b.algorithm && a.kernel_hash == b.kernel_hash && a.config == b.config;
}

Trial parse_trial(std::string_view line) {
  FlatJson json(line, "trial");
  json.take_integer("schema", kSchema, kSchema);
  Trial trial;
  trial.algorithm = json.take_word("algorithm");
  trial.config = parse_config(json.take_text("config"));
  trial.kernel_hash = json.take_word("kernel_hash");
  trial.time_us = json.take_number("time_us", 0, kMaxNumber);
  trial.max_error = json.take_number("max_error", 0, kMaxNumber);
  trial.failure = json.take_text("failure");
  json.finish();
  return trial;
}

// A failure is told in words from anywhere (a compiler, a driver): made fit for a line of text.
std::string one_line(std::string text) {
  constexpr std::size_t kMaxBytes = 1000;
  if (text.size() > kMaxBytes) text.resize(kMaxBytes);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = ' ';
  return text;
}

std::string to_line(Trial trial) {
  if (!trial.failure.empty()) {  // whose numbers mean nothing, and are often not finite
    trial.failure = one_line(std::move(trial.failure));
    trial.time_us = trial.max_error = 0;
  }
  const nlohmann::ordered_json json = {{"schema", kSchema},
                                       {"algorithm", trial.algorithm},
                                       {"config", to_string(trial.config)},
                                       {"kernel_hash", trial.kernel_hash},
                                       {"time_us", trial.time_us},
                                       {"max_error", trial.max_error},
                                       {"failure", trial.failure}};
  std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  parse_trial(line);  // what could not be read back is not written
  return line;
}

std::vector<Trial> read_trials(const std::filesystem::path& path) {
  std::vector<Trial> trials;
  const auto folder = PrivateFolder::open(path.parent_path());
  const auto text = folder ? folder->read(path.filename().string(), kMaxFileBytes) : std::nullopt;
  if (!text) return trials;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    try {
      if (end > begin) trials.push_back(parse_trial(std::string_view(*text).substr(begin, end - begin)));
    } catch (const Error&) {
      // Cut short by a kill or a full disk, or of another version: that trial is made again.
    }
    begin = end + 1;
  }
  return trials;
}

}  // namespace

TrialLog::TrialLog(std::filesystem::path folder, const Conv2dProblem& problem, const std::string& device) {
  const Database database(std::move(folder));
  path_ =
      database.folder() / "trials" / database.path_of(problem, device).filename().replace_extension(".jsonl");
  trials_ = read_trials(path_);
}

const Trial* TrialLog::find(const std::string& algorithm, const Config& config,
                            const std::string& kernel_hash) const {
  const auto found = std::find_if(trials_.rbegin(), trials_.rend(), [&](const Trial& trial) {
    return trial.algorithm == algorithm && trial.kernel_hash == kernel_hash && trial.config == config &&
           !is_start(trial);
  });
  return found == trials_.rend() ? nullptr : &*found;
}

int TrialLog::starts(const std::string& algorithm, const Config& config,
                     const std::string& kernel_hash) const {
  int count = 0;
  for (const Trial& trial : trials_)
    if (trial.algorithm == algorithm && trial.kernel_hash == kernel_hash && trial.config == config)
      count = is_start(trial) ? count + 1 : 0;
  return count;
}

bool TrialLog::start(const std::string& algorithm, const Config& config, const std::string& kernel_hash) {
  return append({algorithm, config, kernel_hash, 0, 0, std::string(kStarted)});
}

bool TrialLog::append(const Trial& trial) {
  const std::string line = to_line(trial);
  trials_.push_back(trial);
  if (!writable_) return false;
  try {
    PrivateFolder::create(path_.parent_path()).append_line(path_.filename().string(), line);
  } catch (const Error& error) {
    writable_ = false;
    warn_once(path_, error, "the search goes on, but cannot be resumed");
  }
  return writable_;
}

void TrialLog::finish() {
  // Read again, for what other processes have found out meanwhile.
  if (writable_) trials_ = read_trials(path_);
  std::vector<Trial> quarantined;
  for (const Trial& trial : trials_) {
    if (is_start(trial)) continue;
    const auto known = std::find_if(quarantined.begin(), quarantined.end(),
                                    [&](const Trial& t) { return same_work(t, trial); });
    if (known != quarantined.end()) quarantined.erase(known);
    if (!trial.failure.empty()) quarantined.push_back(trial);
  }
  trials_ = std::move(quarantined);
  const auto folder = PrivateFolder::open(path_.parent_path());
  if (!folder || !writable_) return;
  std::string lines;
  for (const Trial& trial : trials_) lines += to_line(trial) + '\n';
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
