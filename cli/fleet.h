// The devices of `tune --devices`: one process a device at a time, each the search of one problem. A kernel
// that breaks its device or its process costs a try of one problem, and a record is written by whoever found
// it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/device.h"
#include "convtune/problem.h"
#include "convtune/report.h"
#include "progress.h"

namespace convtune::cli {

// "all", which is every GPU of the best one's kind, else the CPU; or "cuda:0,cuda:2". All are of one kind, so
// that each problem is searched once; a CPU may be named several times where `threads` of each are there.
// Throws Error{invalid_argument} or Error{no_device}.
std::vector<DeviceInfo> fleet_devices(std::string_view list, std::optional<std::int64_t> threads);

class Fleet {
 public:
  // `options`: those of `convtune tune` that every process is given.
  Fleet(const std::vector<ConvProblem>& problems, std::vector<DeviceInfo> devices,
        std::vector<std::string> options);
  ~Fleet();  // ends what still runs
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // Gives problem after problem to the devices until `at` is answered; nothing where Ctrl-C came first: then
  // every process has stopped, and kept what it tried. Throws Error where it cannot be answered.
  std::optional<ReportRow> wait_for(std::size_t at, ProgressLine& progress);

 private:
  struct Place {  // a device, and the process that works there
    DeviceInfo device;
    pid_t process = -1;
    std::size_t problem = 0;
  };
  struct Answer {
    bool done = false;
    int tries = 0;
    ReportRow row;
    std::string failure;  // why there is no row
    ErrorKind kind = ErrorKind::internal;
  };

  std::size_t answered() const;
  std::filesystem::path file(std::size_t problem, const char* extension) const;
  void start(Place& place);
  void take(Place& place, int status);
  void stop();
  std::string progress_text() const;

  std::vector<ConvProblem> problems_;
  std::vector<std::size_t> same_as_;  // the first problem that is equal
  std::size_t different_ = 0;
  std::vector<std::string> options_;
  std::vector<Place> places_;
  std::vector<Answer> answers_;
  std::deque<std::size_t> waiting_;
  std::filesystem::path folder_;  // for the processes' reports and messages
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace convtune::cli
