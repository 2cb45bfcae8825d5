// The vendor's answer on an NVIDIA GPU: cuDNN 9, when it can be loaded. The incumbent of every contest.
// `fused=1` is one operation graph for the whole problem, `fused=0` cuDNN's best sequence, counted whole: the
// convolution, then a graph of pointwise operations. `nhwc=0` gives cuDNN the problem's NCHW tensors as they
// lie; `nhwc=1` has it run channels-last, and counts the conversions of an NCHW problem's tensors (an NHWC
// problem's lie right already). `heuristic` is a position in the list of cudnn_offers.h, `engine` the engine
// of the convolution that must stand there.
//
// Less strict than convtune's own kernels (seen with 9.19.0 on an H100): all engines but 0 multiply padding,
// so that an Inf weight makes NaN at the edges, and the ReLU of engine 0 turns NaN into 0.
#include "cuda/cudnn/cudnn.h"

#include <algorithm>
#include <list>

#include "base/fork_gate.h"
#include "contract/abilities.h"
#include "cuda/compile/kernel_sources.h"
#include "cuda/cudnn/cudnn_api.h"
#include "cuda/cudnn/cudnn_executable.h"
#include "cuda/device/driver.h"
#include "cuda/launch/transposition.h"
#include "problem/config_fields.h"
#include "problem/rewrite.h"

namespace convtune::cuda {
namespace {

struct CudnnConfig {
  std::int64_t nhwc = 0, fused = 1, engine = 0, heuristic = 0;
  template <class Self, class F>
  static void visit(Self& self, F&& field) {
    constexpr int kMost = 1 << 20;
    field("nhwc", self.nhwc, 0, 1,
          "channels last; an NCHW problem is converted there and back, which is counted");
    field("fused", self.fused, 0, 1,
          "bias, residual and activation in the convolution's graph; else in graphs of their own after it");
    field("engine", self.engine, 0, kMost, "cuDNN's number of the engine");
    field("heuristic", self.heuristic, 0, kMost, "place among the offers of cuDNN's heuristics");
  }
  CudnnForm form() const { return {nhwc == 1, fused == 1}; }
};

// The offers for the problems asked about last: search asks about one problem many times.
class RecentOffers {
 public:
  // Calls `question` with the offers, with the session's mutex held.
  template <class Question>
  auto ask(const ConvProblem& problem, const DeviceInfo& device, const CudnnForm& form, Question&& question) {
    CudnnSession& session = cudnn_session(device.device.index);
    const DeviceScope scope(device.device.index);
    const std::scoped_lock lock(mutex_, session.mutex);
    const auto same = [&](const Entry& entry) {
      return entry.session == &session && entry.form == form && entry.problem == problem;
    };
    auto entry = std::find_if(entries_.begin(), entries_.end(), same);
    if (entry == entries_.end()) {
      entries_.push_front({problem, &session, form, {problem, form, session}});
      if (entries_.size() > kKept) entries_.pop_back();
      entry = entries_.begin();
    }
    return question(entry->offers);
  }

 private:
  static constexpr std::size_t kKept = 8;  // two problems, all forms
  struct Entry {
    ConvProblem problem;
    CudnnSession* session;
    CudnnForm form;
    CudnnOffers offers;
  };
  Mutex mutex_;
  std::list<Entry> entries_;
};

RecentOffers& recent_offers() {
  return *once([] { return new RecentOffers; });  // never destroyed, as the sessions of its plans
}

class Cudnn final : public Algorithm {
 public:
  std::string_view name() const override { return "cudnn"; }
  Device::Kind device_kind() const override { return Device::Kind::cuda; }
  bool vendor() const override { return true; }
  std::string library() const override { return "cuDNN " + cudnn_version(); }

  Support supports(const ConvProblem& problem, const DeviceInfo& device) const override {
    Support answer = Support::yes();
    for (const CudnnForm& form : forms(problem)) {
      answer = has_plan(problem, device, form);
      if (answer) break;
    }
    return answer;
  }

  // The forms in turns, each in the order of cuDNN's heuristics.
  std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device) const override {
    std::vector<std::vector<Config>> lists;
    std::size_t longest = 0;
    for (const CudnnForm& form : forms(problem)) {
      if (!can_ask(problem, form)) continue;
      lists.push_back(candidates(problem, device, form));
      longest = std::max(longest, lists.back().size());
    }
    std::vector<Config> configs;
    for (std::size_t i = 0; i < longest; ++i)
      for (const std::vector<Config>& list : lists)
        if (i < list.size()) configs.push_back(list[i]);
    return configs;
  }

  Support accepts(const ConvProblem& problem, const DeviceInfo& device, const Config& config) const override {
    try {
      return find_plan(problem, device, from_config<CudnnConfig>(config)).support;
    } catch (const Error& error) {
      return Support::no(error.what());
    }
  }

  std::unique_ptr<Executable> build(const ConvProblem& problem, const DeviceInfo& device,
                                    const Config& config) const override {
    const auto typed = from_config<CudnnConfig>(config);
    CudnnOffers::Answer answer = find_plan(problem, device, typed);
    if (!answer.support)
      throw Error(ErrorKind::unsupported, "cudnn cannot run this problem: " + answer.support.reason());
    ConvProblem given = problem;
    given.n = std::max<std::int64_t>(given.n, 1);
    return cudnn_executable(given, device, typed.form(), std::move(answer.plan));
  }

  std::vector<ConfigField> fields() const override { return config_fields<CudnnConfig>(); }
  std::string source_hash() const override {
    return "cudnn-" + cudnn_version() + "-" + kernel_source_hash(Transposition::kFile);
  }

 private:
  // The problem that cuDNN is asked. A batch of 0 is never run (its gradient of weights is refused), but its
  // weights are packed: as for a batch of 1. A cache is joined to x first.
  static ConvProblem asked(const ConvProblem& problem) {
    ConvProblem whole = without_dbias(joined(problem));
    whole.n = std::max<std::int64_t>(whole.n, 1);
    return whole;
  }

  static Abilities abilities() {
    return {.types = {DType::f32, DType::f16, DType::bf16},
            .mixed_types = true,
            .activations = {Activation::none, Activation::relu, Activation::clip, Activation::silu,
                            Activation::gelu_erf, Activation::gelu_tanh, Activation::hardswish,
                            Activation::leaky_relu, Activation::sigmoid},
            .residual = true,
            .eager_rounding = true,
            .depth = true,
            .cache = true,
            .directions = {Direction::forward, Direction::backward_data, Direction::backward_weights}};
  }

  // The forms that a problem may have, the more promising first. TF32 and half precision run best
  // channels-last, and on an H100 that earned the conversions back where a sum has many terms, 1x1 filters
  // excepted. A depthwise convolution's fused engines are ten times slower than those for it alone.
  static std::vector<CudnnForm> forms(const ConvProblem& given) {
    const ConvProblem a = without_dbias(given);
    std::vector<CudnnForm> forms;
    const bool depthwise = a.groups > 1 && a.groups == a.c;
    for (const bool fused : {!depthwise, depthwise})
      for (const bool channels_last : layouts(a))
        if (can_ask(given, {channels_last, fused})) forms.push_back({channels_last, fused});
    return forms.empty() ? std::vector<CudnnForm>{{true, true}} : forms;  // which then says why not
  }
  static std::vector<bool> layouts(const ConvProblem& a) {
    if (a.layout == Layout::nhwc) return {true};
    constexpr std::int64_t kManyTerms = 100;
    const std::int64_t taps = a.t * a.r * a.s;
    const bool pays = taps > 1 && a.c / a.groups * taps >= kManyTerms;
    if (pays && (a.precision != Precision::fp32 || a.dtype.x != DType::f32)) return {true, false};
    return {false, true};
  }

  static bool filter_is_longer_than_image(const ConvProblem& a) {
    const auto longer = [](std::int64_t taps, std::int64_t dilation, std::int64_t image) {
      return (taps - 1) * dilation + 1 > image;
    };
    return longer(a.t, a.dilation_d, a.d) || longer(a.r, a.dilation_h, a.h) || longer(a.s, a.dilation_w, a.w);
  }

  // Refuses what can be refused before cuDNN is asked.
  static Support can_ask(const ConvProblem& given, const CudnnForm& form) {
    const ConvProblem a = without_dbias(given);
    if (Support support = within(abilities(), given); !support) return support;
    if (given.n == 0 && given.direction == Direction::backward_weights)
      return Support::no("it computes no gradient of weights over no images");
    // The heuristics of 9.19.0 read from null for such a layer on an H200, and ended the process; for one of
    // one channel, which is depthwise too, two processes ended.
    if (a.direction == Direction::backward_weights && a.groups == a.c && filter_is_longer_than_image(a))
      return Support::no("its heuristics end the process for depthwise filters longer than the image");
    // A process of such a dense layer ended, too, where padding differed between two sides (f16, channels
    // last).
    if (a.direction == Direction::backward_weights && filter_is_longer_than_image(a) &&
        (a.pad_front != a.pad_back || a.pad_top != a.pad_bottom || a.pad_left != a.pad_right))
      return Support::no(
          "a process ended where a filter is longer than the image and two sides' padding differs");
    if (given.bias && !a.bias && !form.channels_last)
      return Support::no("a bias's gradient is summed of dy in channels last alone: nhwc must be 1");
    if (!form.channels_last && a.layout == Layout::nhwc)
      return Support::no("nhwc must be 1 for a problem that lies so");
    if (!form.fused && !has_epilogue(a))
      return Support::no("fused must be 1 for a convolution that nothing follows");
    if (!form.fused && !sequence_is_right(a, form))
      return Support::no("its operations by element are right for channels last in eights alone");
    if (form.fused && rounds_eagerly(a))
      return Support::no("fused must be 0 for a problem that rounds eagerly");
    return Support::yes();
  }

  static Support has_plan(const ConvProblem& problem, const DeviceInfo& device, const CudnnForm& form) {
    if (Support support = can_ask(problem, form); !support) return support;
    try {
      return recent_offers().ask(asked(problem), device, form, [](CudnnOffers& offers) {
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

  static std::vector<Config> candidates(const ConvProblem& problem, const DeviceInfo& device,
                                        const CudnnForm& form) {
    return recent_offers().ask(asked(problem), device, form, [&](CudnnOffers& offers) {
      std::vector<Config> configs;
      for (std::size_t i = 0; i < offers.size(); ++i)
        if (offers.promises(i))
          configs.push_back(to_config(
              CudnnConfig{form.channels_last, form.fused, offers.engine(i), static_cast<std::int64_t>(i)}));
      return configs;
    });
  }

  static CudnnOffers::Answer find_plan(const ConvProblem& problem, const DeviceInfo& device,
                                       const CudnnConfig& config) {
    if (Support support = can_ask(problem, config.form()); !support) return {std::move(support)};
    return recent_offers().ask(asked(problem), device, config.form(), [&](CudnnOffers& offers) {
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
  return cudnn_found() ? &once([] { return Cudnn(); }) : nullptr;
}

}  // namespace convtune::cuda
