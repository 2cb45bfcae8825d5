// What a search has tried so far, so that an interrupted one resumes: one append-only JSON-lines
// file per (problem, device) under DATA/trials/. A line that cannot be read is skipped.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convtune/convolution.h"

namespace convtune {

struct Trial {
  std::string algorithm;
  Config config;
  std::string kernel_hash;
  double time_us = 0;  // best screening time; 0 when `failure` is set
  double max_error = 0;
  std::string failure;  // wrong answer, canary, build error: quarantined, never tried again
};

class TrialLog {
 public:
  // Begun so often without an end, a config is taken for what kills or hangs its process. Not at once: a
  // process also dies of what is none of the config's fault.
  static constexpr int kMostStarts = 2;

  // `folder` is a Database's folder. Reads what is there; nothing is created before the first append.
  TrialLog(std::filesystem::path folder, const Conv2dProblem& problem, const std::string& device);

  // The last trial of this config by this kernel hash that came to an end, if any.
  const Trial* find(const std::string& algorithm, const Config& config, const std::string& kernel_hash) const;
  // How often it was begun since it last came to an end.
  int starts(const std::string& algorithm, const Config& config, const std::string& kernel_hash) const;
  // Says that it begins, before its kernel runs for the first time: append() is its end.
  bool start(const std::string& algorithm, const Config& config, const std::string& kernel_hash);
  // One write(2) with O_APPEND, so that processes do not tear each other's lines. Returns false with
  // one warning (Database::take_warnings) when it cannot be written; the search goes on.
  bool append(const Trial& trial);
  // After the record is written: only quarantined trials are worth keeping.
  void finish();

 private:
  std::filesystem::path path_;
  std::vector<Trial> trials_;
  bool writable_ = true;
};

}  // namespace convtune
