// See cudnn_offers.h.
#include "cuda/cudnn/cudnn_offers.h"

#include <fmt/format.h>

#include <algorithm>

namespace convtune::cuda {
namespace {

constexpr std::int64_t kMaxOffers = 256, kMaxKnobs = 64, kMaxNotes = 32;

// The knobs of an engine configuration as pairs: two with the same engine and knobs are one.
std::vector<std::int64_t> knobs_of(const CudnnDescriptor& config) {
  std::vector<std::int64_t> knobs;
  for (const CudnnDescriptor& choice : config.get_descriptors(CudnnAttribute::engine_config_knob_choices,
                                                              CudnnKind::knob_choice, kMaxKnobs)) {
    for (const int type : choice.get_enums(CudnnAttribute::knob_choice_type, CudnnType::knob_type, 1))
      knobs.push_back(type);
    knobs.push_back(choice.get_int64(CudnnAttribute::knob_choice_value));
  }
  return knobs;
}

// Products of tensor cores are those of fp32 where the tensors are half precision already.
bool tensor_cores_allowed(const ConvProblem& a) {
  return a.precision != Precision::fp32 || (a.dtype.x != DType::f32 && a.dtype.w != DType::f32);
}

// Winograd and FFT make larger errors than the products that they save, atomics another answer each time.
Support computes_as_asked(const std::vector<int>& notes, const ConvProblem& a) {
  for (const int number : notes) {
    switch (static_cast<CudnnNote>(number)) {
      case CudnnNote::tensor_core:
      case CudnnNote::down_convert_inputs:
        if (!tensor_cores_allowed(a))
          return Support::no("it multiplies in TF32, and the problem asks for fp32");
        break;
      case CudnnNote::reduced_precision_reduction:
        return Support::no("it sums in less than fp32");
      case CudnnNote::nondeterministic:
        return Support::no("it answers differently from run to run");
      case CudnnNote::fft:
      case CudnnNote::winograd:
      case CudnnNote::winograd_tile_4x4:
      case CudnnNote::winograd_tile_6x6:
      case CudnnNote::winograd_tile_13x13:
        return Support::no("it transforms its input, with larger errors than the problem allows");
      case CudnnNote::strict_nan_propagation:
        break;
    }
  }
  return Support::yes();
}

bool is_compiled(const std::vector<int>& behavior) {
  return std::find(behavior.begin(), behavior.end(), kCudnnRuntimeCompilation) != behavior.end();
}

// Lists engines that gave wrong results on integer data: cuDNN 9.19.0 on an H100 and H200, docs/notebook/.
// Engines are numbered for each pattern of graph: these numbers are those of a convolution alone, or with a
// bias. Engines of gradients have numbers of their own; of backward data none was seen to be wrong.
Support answers_rightly(std::int64_t engine, bool compiled, const ConvProblem& a, const CudnnForm& form) {
  const bool in_eights = form.channels_last && a.c % 8 == 0 && a.k % 8 == 0;
  if (compiled && (a.dtype.x == DType::f32 || !in_eights))
    return Support::no("it is compiled at run time: such engines answered wrongly, or broke the device");
  if (a.dtype.x != a.dtype.w && a.dtype.x != DType::f32 && a.dtype.w != DType::f32)
    return Support::no("x and w are of two half types, of which an engine read one as the other");
  if (a.direction == Direction::backward_weights && engine == 1 && (a.t > a.d || a.r > a.h || a.s > a.w))
    return Support::no("it read padding as pixels where a filter is longer than the image");
  if (a.direction == Direction::backward_weights && engine == 1 &&
      (a.has_depth() || (a.h == 1 && a.r == 1)) &&
      (a.pad_front != a.pad_back || a.pad_top != a.pad_bottom || a.pad_left != a.pad_right))
    return Support::no(
        "it read padding as pixels in three dimensions, and in one, where two sides' padding differs");
  if (a.direction == Direction::backward_weights && engine == 47 && a.dtype.x == DType::bf16)
    return Support::no("it sums in less than fp32, which its notes say of fp16 alone");
  if (a.direction != Direction::forward) return Support::yes();
  if (compiled && engine == 71) return Support::no("it broke the device");
  if ((engine == 26 || engine == 29) && a.dtype.x == DType::f32 && cudnn_bias_elements(a, form) > 0 &&
      form.fused && a.k % 4 != 0)
    return Support::no("its bias is wrong by 2^-11 where the output channels are no multiple of 4");
  return Support::yes();
}

}  // namespace

std::int64_t CudnnPlan::workspace_bytes() const {
  std::int64_t most = 0;
  for (const auto& step : steps) most = std::max(most, step->workspace_bytes);
  return most;
}

CudnnOffers::CudnnOffers(const ConvProblem& problem, const CudnnForm& form, CudnnSession& session)
    : problem_(problem),
      form_(form),
      session_(session),
      graph_(convolution_graph(problem, form, session)),
      offers_(offers_for(graph_)) {}

std::vector<CudnnOffers::Offer> CudnnOffers::offers_for(const CudnnGraph& graph) const {
  std::vector<Offer> offers;
  std::vector<std::vector<std::int64_t>> seen;
  for (const CudnnHeuristic mode : {CudnnHeuristic::a, CudnnHeuristic::b, CudnnHeuristic::fallback}) {
    CudnnDescriptor heuristics(CudnnKind::engine_heuristics);
    heuristics.set(CudnnAttribute::engine_heuristics_operation_graph, graph.descriptor);
    heuristics.set_enum(CudnnAttribute::engine_heuristics_mode, CudnnType::heuristic_mode,
                        static_cast<int>(mode));
    if (session_.device)
      heuristics.set(CudnnAttribute::engine_heuristics_device_properties, *session_.device);
    try {
      heuristics.finalize();
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::unsupported) continue;  // this mode has nothing to say
      throw;
    }
    for (CudnnDescriptor& config : heuristics.get_descriptors(CudnnAttribute::engine_heuristics_results,
                                                              CudnnKind::engine_config, kMaxOffers)) {
      const std::vector<CudnnDescriptor> engines =
          config.get_descriptors(CudnnAttribute::engine_config_engine, CudnnKind::engine, 1);
      if (engines.empty()) continue;
      Offer offer{.engine = engines.front().get_int64(CudnnAttribute::engine_global_index),
                  .config = std::move(config),
                  .notes = engines.front().get_enums(CudnnAttribute::engine_numerical_note,
                                                     CudnnType::numerical_note, kMaxNotes),
                  .behavior = engines.front().get_enums(CudnnAttribute::engine_behavior_note,
                                                        CudnnType::behavior_note, kMaxNotes)};
      std::vector<std::int64_t> identity = knobs_of(offer.config);
      identity.push_back(offer.engine);
      if (std::find(seen.begin(), seen.end(), identity) != seen.end()) continue;
      seen.push_back(std::move(identity));
      offers.push_back(std::move(offer));
    }
  }
  return offers;
}

const CudnnOffers::Answer& CudnnOffers::plan(std::size_t position) {
  Offer& offer = offers_[position];
  if (!offer.answer) offer.answer = build(offer);
  return *offer.answer;
}

Support CudnnOffers::promises(std::size_t position) {
  const Offer& offer = offers_[position];
  return is_compiled(offer.behavior) ? allowed(offer) : plan(position).support;
}

Support CudnnOffers::allowed(const Offer& offer) const {
  const Support fit = computes_as_asked(offer.notes, problem_);
  return fit ? answers_rightly(offer.engine, is_compiled(offer.behavior), problem_, form_) : fit;
}

CudnnOffers::Answer CudnnOffers::build(const Offer& offer) {
  if (Support fit = allowed(offer); !fit) return {std::move(fit)};
  const Answer& rest = epilogue();
  if (!rest.support) return rest;
  Planned planned = plan_step(graph_, offer);
  if (!planned.support) return {std::move(planned.support)};
  auto plan = std::make_shared<CudnnPlan>();
  plan->steps.push_back(std::move(planned.step));
  plan->steps.insert(plan->steps.end(), rest.plan->steps.begin(), rest.plan->steps.end());
  return {Support::yes(), std::move(plan)};
}

const CudnnOffers::Answer& CudnnOffers::epilogue() {
  if (epilogue_) return *epilogue_;
  auto plan = std::make_shared<CudnnPlan>();
  try {
    for (const CudnnGraph& graph : epilogue_graphs(problem_, form_, session_)) {
      Planned planned{Support::no("there are no offers")};
      for (const Offer& offer : offers_for(graph))
        if (planned = plan_step(graph, offer); planned.support) break;
      if (!planned.support)
        return epilogue_.emplace(
            Answer{Support::no("what follows the convolution has no engine: " + planned.support.reason())});
      plan->steps.push_back(std::move(planned.step));
    }
  } catch (const Error& error) {
    return epilogue_.emplace(Answer{Support::no(error.what())});
  }
  return epilogue_.emplace(Answer{Support::yes(), std::move(plan)});
}

CudnnOffers::Planned CudnnOffers::plan_step(const CudnnGraph& graph, const Offer& offer) const {
  try {
    CudnnStep step{CudnnDescriptor(CudnnKind::execution_plan), graph.tensors};
    if (session_.handle != nullptr)
      step.descriptor.set(CudnnAttribute::execution_plan_handle, session_.handle);
    else if (session_.device)
      step.descriptor.set(CudnnAttribute::execution_plan_device_properties, *session_.device);
    step.descriptor.set(CudnnAttribute::execution_plan_engine_config, offer.config);
    step.descriptor.finalize();
    step.workspace_bytes = step.descriptor.get_int64(CudnnAttribute::execution_plan_workspace_size);
    if (step.workspace_bytes > kCudnnWorkspaceBytes)
      return {Support::no(fmt::format("it wants {} bytes of workspace, and {} are allowed",
                                      step.workspace_bytes, kCudnnWorkspaceBytes))};
    return {Support::yes(), std::make_shared<const CudnnStep>(std::move(step))};
  } catch (const Error& error) {
    return {Support::no(error.what())};
  }
}

}  // namespace convtune::cuda
