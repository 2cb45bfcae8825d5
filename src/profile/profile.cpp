// profile(): our own program again, as ncu's child. Only that process touches the GPU.
#include "convtune/profile.h"

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "base/process.h"
#include "contract/backend.h"
#include "convtune/error.h"
#include "measure/testbed.h"
#include "plan/algorithms.h"
#include "profile/ncu.h"

namespace convtune {
namespace {

constexpr std::string_view kLaunched = "launched ", kError = "convtune: error: ";
constexpr int kLaunches = 3;
constexpr std::int64_t kSamples = 256;  // outputs that are checked

std::string forbidden() {
  return "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): the administrator of the "
         "machine can allow it for all with the line\n"
         "  options nvidia NVreg_RestrictProfilingToAdminUsers=0\n"
         "in a file of /etc/modprobe.d and a restart; root, or a process with CAP_SYS_ADMIN (docker run "
         "--cap-add=SYS_ADMIN), needs no such line; rented GPUs often allow neither, and then tune and "
         "verify "
         "lose nothing: metrics are a help and never a need";
}

// The last thing that was said of a failure: the command's own words, else ncu's, else how it ended.
std::string why_not(const NcuAnswer& answer, const ChildProcess& ncu) {
  const std::string& errors = ncu.errors();
  if (const std::size_t at = errors.rfind(kError); at != errors.npos) {
    std::string text = errors.substr(at + kError.size());
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }
  for (const std::string& message : answer.messages)
    if (message.starts_with("ERROR: ")) return "ncu: " + message.substr(7);
  return "ncu " + ncu.ending();
}

}  // namespace

Profile profile(const std::vector<std::string>& command, const ProfileOptions& options) {
  Profile result;
  ChildProcess ncu(ncu_command(find_ncu(), command), {"LC_ALL=C"});
  const auto cancelled = [&] { return options.cancel && options.cancel->load(); };
  std::string output, line;
  ChildProcess::Got got;
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto left = [&] {
    return options.seconds - std::chrono::duration<double>(Clock::now() - begin).count();
  };
  while ((got = ncu.read_line(line, left(), cancelled)) == ChildProcess::Got::line) output += line + '\n';
  if (got == ChildProcess::Got::cancelled) {
    result.interrupted = true;
    return result;
  }
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorKind::unsupported, "nothing was profiled: " + why);
  };
  if (got == ChildProcess::Got::late) refuse(fmt::format("ncu took more than {:g} s", options.seconds));

  const NcuAnswer answer = parse_ncu(output);
  if (answer.forbidden || ncu.errors().find("ERR_NVGPUCTRPERM") != std::string::npos) refuse(forbidden());
  for (const std::string& other : answer.others)
    if (other.starts_with(kLaunched)) result.plan = other.substr(kLaunched.size());
  if (!ncu.succeeded() || result.plan.empty() || answer.launches.empty()) refuse(why_not(answer, ncu));
  for (const std::string& message : answer.messages)
    if (message.find("unmodified GPU clocks") == message.npos)  // they are left alone on purpose
      result.notes.push_back("ncu: " + message);
  std::string note;
  result.metrics = launch_of(result.plan.substr(0, result.plan.find(' ')), answer.launches, note);
  if (!note.empty()) result.notes.push_back(note);
  return result;
}

std::string launch_for_profiler(const ConvProblem& problem, Device device, const std::string& algorithm,
                                const Config& config) {
  const Convolution planned =
      algorithm.empty() ? plan(problem, device) : plan(problem, device, algorithm, config);
  if (planned.problem().n == 0)
    throw Error(ErrorKind::invalid_argument, "a batch of 0 launches nothing that could be profiled");
  const Plan& chosen = planned.plan();
  const std::unique_ptr<Executable> executable =
      find_algorithm(device.kind, chosen.algorithm).build(planned.problem(), planned.device(), chosen.config);
  Testbed bed(planned.problem(), backend(device), TestData::real, 1,
              affordable_samples(planned.problem(), kSamples));
  for (int i = 0; i < kLaunches; ++i)
    if (const CheckResult result = bed.check(*executable); !result.failure.empty())
      throw Error(ErrorKind::internal, fmt::format("{} is wrong: {}", chosen.algorithm, result.failure));
  return fmt::format("{}{} {}", kLaunched, chosen.algorithm, to_string(chosen.config));
}

}  // namespace convtune
