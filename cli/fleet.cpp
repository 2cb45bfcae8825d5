// See fleet.h.
#include "fleet.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include "convtune/error.h"
#include "exit_code.h"
#include "interrupt.h"
#include "options.h"
#include "output.h"

namespace convtune::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kTries = 3;  // a candidate that kills its process is in quarantine after two
constexpr std::chrono::milliseconds kPause(20);

std::vector<DeviceInfo> named_devices(std::string_view list) {
  std::vector<DeviceInfo> found;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    found.push_back(device_info(parse_device(std::string(list.substr(at, end - at)))));
    at = end + 1;
  }
  return found;
}

// Every GPU of the best one's kind, else the CPU.
std::vector<DeviceInfo> all_devices() {
  std::vector<DeviceInfo> found;
  const std::vector<DeviceInfo> here = devices();
  for (const DeviceInfo& one : here) {
    if (one.fingerprint == here.front().fingerprint) {
      found.push_back(one);
    } else if (one.device.kind == Device::Kind::cuda) {
      const std::string name = to_string(one.device);
      print_warning(
          fmt::format("{} ({}) is left out: it is of another kind than {}; `--devices {}` tunes there", name,
                      one.name, to_string(here.front().device), name));
    }
  }
  return found;
}

// Returns a process's messages of one kind: "warning", "error".
std::vector<std::string> said(const fs::path& file, std::string_view kind) {
  std::vector<std::string> found;
  std::ifstream lines(file);
  const std::string head = fmt::format("convtune: {}: ", kind);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(head)) found.push_back(line.substr(head.size()));
  return found;
}

std::string ending(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

std::vector<DeviceInfo> fleet_devices(std::string_view list, std::optional<std::int64_t> threads) {
  if (threads) set_cpu_threads(static_cast<int>(*threads));
  std::vector<DeviceInfo> found = list == "all" ? all_devices() : named_devices(list);
  for (const DeviceInfo& one : found) {
    const auto same = std::count_if(found.begin(), found.end(),
                                    [&](const DeviceInfo& other) { return other.device == one.device; });
    const std::string name = to_string(one.device);
    if (one.fingerprint != found.front().fingerprint)
      throw bad(
          fmt::format("--devices '{}': {} ({}) and {} ({}) are of different kinds, which need searches of "
                      "their own; run the command once for each",
                      list, to_string(found.front().device), found.front().name, name, one.name));
    if (same > 1 && one.device.kind != Device::Kind::cpu)
      throw bad(fmt::format("--devices '{}' names {} twice", list, name));
    const auto processors = static_cast<std::int64_t>(std::thread::hardware_concurrency());
    if (same > 1 && same * one.units > processors)
      throw bad(
          fmt::format("--devices '{}' needs {} times {} threads, and there are {} processors; name fewer, "
                      "or say --threads",
                      list, same, one.units, processors));
  }
  return found;
}

Fleet::Fleet(const std::vector<ConvProblem>& problems, std::vector<DeviceInfo> devices,
             std::vector<std::string> options)
    : problems_(problems), options_(std::move(options)), answers_(problems.size()) {
  std::string folder = (fs::temp_directory_path() / "convtune-fleet-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    throw Error(ErrorKind::io, fmt::format("{}: {}; TMPDIR names another folder", folder,
                                           std::system_category().message(errno)));
  folder_ = folder;
  for (DeviceInfo& device : devices) places_.push_back({std::move(device)});
  std::map<std::string, std::size_t> first;
  for (std::size_t i = 0; i < problems_.size(); ++i) {
    same_as_.push_back(first.try_emplace(key(problems_[i]), i).first->second);
    if (same_as_[i] == i) waiting_.push_back(i);
  }
  different_ = waiting_.size();
  std::signal(SIGCHLD, SIG_DFL);  // whoever ignores it is not told how a process ended
}

Fleet::~Fleet() {
  stop();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::size_t Fleet::answered() const {
  return static_cast<std::size_t>(
      std::count_if(answers_.begin(), answers_.end(), [](const Answer& one) { return one.done; }));
}

fs::path Fleet::file(std::size_t problem, const char* extension) const {
  return folder_ / fmt::format("{}{}", problem, extension);
}

void Fleet::start(Place& place) {
  place.problem = waiting_.front();
  waiting_.pop_front();
  std::error_code ignored;
  fs::remove(file(place.problem, ".json"), ignored);  // from an earlier try
  std::vector<std::string> words = {"convtune",
                                    "tune",
                                    to_string(problems_[place.problem]),
                                    "--device",
                                    to_string(place.device.device),
                                    "--json",
                                    file(place.problem, ".json").string()};
  words.insert(words.end(), options_.begin(), options_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string messages = file(place.problem, ".txt").string();
  const pid_t parent = ::getpid();
  place.process = ::fork();
  if (place.process < 0)
    throw Error(ErrorKind::io,
                fmt::format("a process for {} cannot be started: {}", to_string(place.device.device),
                            std::system_category().message(errno)));
  if (place.process > 0) return;
  ::setpgid(0, 0);                    // Ctrl-C reaches the parent alone, which hands it on once
  ::prctl(PR_SET_PDEATHSIG, SIGINT);  // as if it had been handed on
  if (::getppid() != parent) ::_exit(kInternal);
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const int text = ::open(messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ::dup2(nothing, 0), ::dup2(nothing, 1), ::dup2(text, 2);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(kInternal);
}

// Reads what the process at `place`, which has ended, has left behind.
void Fleet::take(Place& place, int status) {
  place.process = -1;
  Answer& answer = answers_[place.problem];
  const fs::path messages = file(place.problem, ".txt"), report = file(place.problem, ".json");
  for (const std::string& warning : said(messages, "warning")) print_warning(warning);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kInternal;
  std::vector<ReportRow> rows;
  std::string unread;  // a full disk leaves half a report, which counts as none
  try {
    if (std::error_code none; fs::exists(report, none))
      rows = std::get<std::vector<ReportRow>>(load_report(report.string()).content);
  } catch (const Error& error) {
    unread = error.what();
  }
  if (rows.size() == 1 && rows[0].failure.empty()) {
    answer.row = std::move(rows[0]);
    answer.row.comparison.device = place.device;
    answer.done = true;
    return;
  }
  const bool again = code == kInternal || code == kInterrupted;
  if (again && ++answer.tries < kTries) return waiting_.push_back(place.problem);
  const std::vector<std::string> errors = said(messages, "error");
  answer.failure = rows.size() == 1 ? rows[0].failure : errors.empty() ? unread : errors.back();
  if (again || answer.failure.empty())
    answer.failure = fmt::format("its process on {} {}{}{}{}", to_string(place.device.device), ending(status),
                                 answer.tries > 1 ? fmt::format(", the last of {}", answer.tries) : "",
                                 answer.failure.empty() ? "" : ": ", answer.failure);
  answer.kind = code == kNoDevice ? ErrorKind::no_device
                : again           ? ErrorKind::internal
                                  : ErrorKind::unsupported;
  answer.done = true;
}

void Fleet::stop() {
  for (const Place& place : places_)
    if (place.process > 0) ::kill(place.process, SIGINT);
  for (Place& place : places_) {
    int status = 0;
    if (place.process > 0 && ::waitpid(place.process, &status, 0) == place.process) place.process = -1;
  }
}

std::string Fleet::progress_text() const {
  const std::size_t done = answered();
  std::string text, work;
  for (const Place& place : places_)
    if (place.process > 0)
      work += fmt::format("{}{} at {}", work.empty() ? "" : ", ", to_string(place.device.device),
                          label(problems_[place.problem]));
  if (done > 0) {
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - start_;
    text = duration_text(gone.count() / static_cast<double>(done) * static_cast<double>(different_ - done)) +
           " left, ";
  }
  return text + fmt::format("{} of {} done: {}", done, different_, work);
}

std::optional<ReportRow> Fleet::wait_for(std::size_t at, ProgressLine& progress) {
  Answer& answer = answers_[same_as_[at]];
  while (!answer.done) {
    if (interrupted()) return stop(), std::nullopt;
    for (Place& place : places_) {
      int status = 0;
      if (place.process > 0 && ::waitpid(place.process, &status, WNOHANG) == place.process)
        take(place, status);
      if (place.process < 0 && !waiting_.empty()) start(place);
    }
    progress.show(progress_text());
    std::this_thread::sleep_for(kPause);
  }
  if (!answer.failure.empty()) throw Error(answer.kind, answer.failure);
  ReportRow row = answer.row;
  row.comparison.problem.name = problems_[at].name;
  return row;
}

}  // namespace convtune::cli
