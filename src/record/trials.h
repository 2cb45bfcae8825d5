// Keeps the trials of a search, so that an interrupted search resumes: one append-only JSON-lines
// file per (problem, device) under DATA/trials/, which processes share. A line that cannot be read is
// skipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convtune/config.h"
#include "convtune/problem.h"

namespace convtune {

struct Trial {
  std::string algorithm;
  Config config;
  std::string kernel_hash;
  double time_us = 0;  // best screening time; 0 when `failure` is set
  double max_error = 0;
  std::string failure;  // wrong answer, canary, build error: quarantined, never tried again
};

// One line of the log.
struct TrialEntry {
  enum class Event {
    result,    // it came to an end, and this is what came of it
    start,     // it begins
    end,       // it came to an end, and what came of it is of no further interest
    left_out,  // a search did without it, for its deaths
    retune,    // of no trial: a search that is to find everything out again begins
  };
  Event event = Event::result;
  Trial trial;                    // per result all of it, else what it is of
  std::string process;            // of a start: process_identity()
  std::int64_t unix_seconds = 0;  // of a start
};

class TrialLog {
 public:
  // Begun by kMostDeaths processes that died before its end, a config is taken for what kills or hangs them.
  // Not at once: a process also dies of what is none of the config's fault.
  static constexpr int kMostDeaths = 2;

  // `folder` is a Database's folder; nothing is kept where it is empty. Reads what is there; nothing is
  // created before the first line.
  TrialLog(const std::filesystem::path& folder, const ConvProblem& problem, const std::string& device);

  // The last result of this config by this kernel hash, if any.
  const Trial* find(const std::string& algorithm, const Config& config, const std::string& kernel_hash) const;
  // The last result of every config that has one; no failures.
  std::vector<Trial> results() const;

  struct Deaths {
    int processes = 0;  // that began it, and died before it came to an end
    int left_out = 0;   // searches that left it out since the last process began
  };
  // Since it last came to an end. The file is read again, for what other processes have found out meanwhile.
  Deaths deaths(const std::string& algorithm, const Config& config, const std::string& kernel_hash) const;

  // Each is one write(2) with O_APPEND, so that processes do not tear each other's lines. Returns false with
  // one warning (Database::take_warnings) when it cannot be written; the search goes on.
  bool append(const Trial& result);
  // Before its kernel runs for the first time: a result, or end(), is its end.
  bool start(const std::string& algorithm, const Config& config, const std::string& kernel_hash);
  bool end(const std::string& algorithm, const Config& config, const std::string& kernel_hash);
  bool leave_out(const std::string& algorithm, const Config& config, const std::string& kernel_hash);

  // Forgets everything, unless such a search has begun before and never finished: then this one goes on.
  // `keep` false: the file stays as it is.
  void begin_anew(bool keep);
  bool begun_anew() const;  // and not finished
  // After the record is written: quarantined trials and deaths are worth keeping, and where the record is not
  // `proven`, and the contest goes on some day, all results.
  void finish(bool proven);

 private:
  bool append(TrialEntry entry);
  void replace();  // the file by what is known

  std::filesystem::path path_;
  std::vector<TrialEntry> entries_;
  bool writable_ = true;
};

}  // namespace convtune
