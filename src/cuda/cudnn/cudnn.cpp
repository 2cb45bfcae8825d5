// The vendor's answer on an NVIDIA GPU: cuDNN 9, when it can be loaded. The incumbent of every contest.
// Convolution, bias and ReLU are one fused operation graph. `nhwc=0` gives cuDNN the problem's NCHW tensors
// as they lie; `nhwc=1` has it run channels-last, and counts the conversions of an NCHW problem's input and
// output (an NHWC problem's tensors lie right already). `heuristic` is a position in the list of
// cudnn_graph.h, `engine` the engine that must stand there.
//
// Less strict than convtune's own kernels (seen with 9.19.0 on an H100): all engines but 0 multiply padding,
// so that an Inf weight makes NaN at the edges, and the ReLU of engine 0 turns NaN into 0.
#include "cuda/cudnn/cudnn.h"

#include <algorithm>
#include <list>

#include "cuda/compile/kernel_sources.h"
#include "cuda/cudnn/cudnn_api.h"
#include "cuda/cudnn/cudnn_executable.h"
#include "cuda/device/driver.h"
#include "problem/config.h"

namespace convtune::cuda {
namespace {

struct CudnnConfig {
  std::int64_t nhwc = 0, engine = 0, heuristic = 0;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    constexpr int kMost = 1 << 20;
    field("nhwc", self.nhwc, 0, 1,
          "channels last; an NCHW problem is converted there and back, which is counted");
    field("engine", self.engine, 0, kMost, "cuDNN's number of the engine");
    field("heuristic", self.heuristic, 0, kMost, "place among the offers of cuDNN's heuristics");
  }
};

// The offers for the problems asked about last: search asks about one problem many times.
class RecentOffers {
 public:
  // What `question` answers to the offers, with the session's mutex held.
  template <class Question>
  auto ask(const Conv2dProblem& problem, const DeviceInfo& device, bool channels_last, Question&& question) {
    CudnnSession& session = cudnn_session(device.device.index);
    const DeviceScope scope(device.device.index);
    const std::scoped_lock lock(mutex_, session.mutex);
    const auto same = [&](const Entry& entry) {
      return entry.session == &session && entry.channels_last == channels_last && entry.problem == problem;
    };
    auto entry = std::find_if(entries_.begin(), entries_.end(), same);
    if (entry == entries_.end()) {
      entries_.push_front({problem, &session, channels_last, {problem, channels_last, session}});
      if (entries_.size() > kKept) entries_.pop_back();
      entry = entries_.begin();
    }
    return question(entry->offers);
  }

 private:
  static constexpr std::size_t kKept = 4;  // two problems, both layouts
  struct Entry {
    Conv2dProblem problem;
    CudnnSession* session;
    bool channels_last;
    CudnnOffers offers;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;
};

RecentOffers& recent_offers() {
  static auto& instance = *new RecentOffers;  // never destroyed, as the sessions of its plans
  return instance;
}

class Cudnn final : public Algorithm {
 public:
  std::string_view name() const override { return "cudnn"; }
  Device::Kind device_kind() const override { return Device::Kind::cuda; }
  bool vendor() const override { return true; }

  Support supports(const Conv2dProblem& problem, const DeviceInfo& device) const override {
    Support answer = Support::yes();
    for (const std::int64_t nhwc : layouts(problem)) {
      answer = has_plan(problem, device, nhwc);
      if (answer) break;
    }
    return answer;
  }

  // The layouts in turns, each in the order of cuDNN's heuristics.
  std::vector<Config> candidates(const Conv2dProblem& problem, const DeviceInfo& device) const override {
    std::vector<std::vector<Config>> lists;
    std::size_t longest = 0;
    for (const std::int64_t nhwc : layouts(problem)) {
      if (!can_ask(problem, nhwc)) continue;
      lists.push_back(candidates(problem, device, nhwc));
      longest = std::max(longest, lists.back().size());
    }
    std::vector<Config> configs;
    for (std::size_t i = 0; i < longest; ++i)
      for (const std::vector<Config>& list : lists)
        if (i < list.size()) configs.push_back(list[i]);
    return configs;
  }

  Support accepts(const Conv2dProblem& problem, const DeviceInfo& device,
                  const Config& config) const override {
    try {
      return find_plan(problem, device, from_config<CudnnConfig>(config)).support;
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const Conv2dProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    const auto typed = from_config<CudnnConfig>(config);
    CudnnOffers::Answer answer = find_plan(problem, device, typed);
    if (!answer.support)
      throw Error(ErrorKind::unsupported, "cudnn cannot run this problem: " + answer.support.reason());
    return cudnn_executable(not_empty(problem), device, typed.nhwc == 1, std::move(answer.plan));
  }

  std::vector<ConfigField> fields() const override { return config_fields<CudnnConfig>(); }
  std::string source_hash() const override {
    return "cudnn-" + cudnn_version() + "-" + kernel_source_hash("cuda/launch/transpose_tile.cuh");
  }

 private:
  // A batch of 0 is never run, but its weights are packed: as for a batch of 1.
  static Conv2dProblem not_empty(Conv2dProblem problem) {
    problem.n = std::max<std::int64_t>(problem.n, 1);
    return problem;
  }

  // The values that `nhwc` may have, the more promising first. TF32 runs best channels-last, and on an H100
  // that earned the conversions back where a sum has many terms, 1x1 filters excepted.
  static std::vector<std::int64_t> layouts(const Conv2dProblem& a) {
    if (a.layout == Layout::nhwc) return {1};
    constexpr std::int64_t kManyTerms = 100;
    const bool pays = a.r * a.s > 1 && a.c / a.groups * a.r * a.s >= kManyTerms;
    if (pays && a.precision != Precision::fp32) return {1, 0};
    return {0, 1};
  }

  // What can be said before cuDNN is asked.
  static Support can_ask(const Conv2dProblem& a, std::int64_t nhwc) {
    if (a.dtype != DType::f32)
      return Support::no("it is used for f32 tensors only, and these are " + std::string(to_string(a.dtype)));
    if (nhwc != 1 && a.layout == Layout::nhwc)
      return Support::no("nhwc must be 1 for a problem that lies so");
    return Support::yes();
  }

  static Support has_plan(const Conv2dProblem& problem, const DeviceInfo& device, std::int64_t nhwc) {
    if (Support support = can_ask(problem, nhwc); !support) return support;
    try {
      return recent_offers().ask(not_empty(problem), device, nhwc == 1, [](CudnnOffers& offers) {
        Support last = Support::no("there are none");
        for (std::size_t i = 0; i < offers.size(); ++i) {
          last = offers.plan(i).support;
          if (last) return last;
        }
        return Support::no("none of cuDNN's " + std::to_string(offers.size()) +
                           " offers will do: " + last.reason());
      });
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  static std::vector<Config> candidates(const Conv2dProblem& problem, const DeviceInfo& device,
                                        std::int64_t nhwc) {
    return recent_offers().ask(not_empty(problem), device, nhwc == 1, [&](CudnnOffers& offers) {
      std::vector<Config> configs;
      for (std::size_t i = 0; i < offers.size(); ++i)
        if (offers.plan(i).support)
          configs.push_back(to_config(CudnnConfig{nhwc, offers.engine(i), static_cast<std::int64_t>(i)}));
      return configs;
    });
  }

  static CudnnOffers::Answer find_plan(const Conv2dProblem& problem, const DeviceInfo& device,
                                       const CudnnConfig& config) {
    if (Support support = can_ask(problem, config.nhwc); !support) return {std::move(support)};
    return recent_offers().ask(not_empty(problem), device, config.nhwc == 1, [&](CudnnOffers& offers) {
      const auto size = static_cast<std::int64_t>(offers.size());
      if (config.heuristic < 0 || config.heuristic >= size)
        return CudnnOffers::Answer{Support::no("heuristic must be 0 to " + std::to_string(size - 1) +
                                               ", not " + std::to_string(config.heuristic))};
      const auto position = static_cast<std::size_t>(config.heuristic);
      if (offers.engine(position) != config.engine)
        return CudnnOffers::Answer{Support::no(
            "cuDNN " + cudnn_version() + " offers engine " + std::to_string(offers.engine(position)) +
            " at position " + std::to_string(position) + ", not " + std::to_string(config.engine))};
      return offers.plan(position);
    });
  }
};

}  // namespace

const Algorithm* cudnn() {
  static const Cudnn algorithm;
  return cudnn_found() ? &algorithm : nullptr;
}

}  // namespace convtune::cuda
