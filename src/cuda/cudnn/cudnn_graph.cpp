// See cudnn_graph.h.
#include "cuda/cudnn/cudnn_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cuda/device/driver.h"

namespace convtune::cuda {
namespace {

using Dimensions = std::vector<std::int64_t>;

// ---- The problem in cuDNN's words -----------------------------------------------------------------

// Dimensions are always given as N, C, H, W; strides say how they lie. A virtual tensor is never stored.
CudnnDescriptor tensor(std::int64_t id, const Dimensions& n_c_h_w, bool channels_last, bool is_virtual) {
  const std::int64_t c = n_c_h_w[1], h = n_c_h_w[2], w = n_c_h_w[3];
  CudnnDescriptor tensor(CudnnKind::tensor);
  tensor.set_enum(CudnnAttribute::tensor_data_type, CudnnType::data_type, kCudnnFloat);
  tensor.set(CudnnAttribute::tensor_dimensions, n_c_h_w);
  tensor.set(CudnnAttribute::tensor_strides,
             channels_last ? Dimensions{c * h * w, 1, w * c, c} : Dimensions{c * h * w, h * w, w, 1});
  tensor.set(CudnnAttribute::tensor_unique_id, Dimensions{id});
  tensor.set(CudnnAttribute::tensor_byte_alignment, Dimensions{kCudnnAlignment});
  if (is_virtual) tensor.set_true(CudnnAttribute::tensor_is_virtual);
  tensor.finalize();
  return tensor;
}

CudnnDescriptor tensor(CudnnTensor id, const Dimensions& n_c_h_w, bool channels_last) {
  return tensor(static_cast<std::int64_t>(id), n_c_h_w, channels_last, false);
}

CudnnDescriptor convolution(const Conv2dProblem& a, const CudnnDescriptor& x, const CudnnDescriptor& w,
                            const CudnnDescriptor& y) {
  CudnnDescriptor shape(CudnnKind::convolution);
  shape.set_enum(CudnnAttribute::convolution_compute_type, CudnnType::data_type, kCudnnFloat);
  shape.set_enum(CudnnAttribute::convolution_mode, CudnnType::convolution_mode, kCudnnCrossCorrelation);
  shape.set(CudnnAttribute::convolution_spatial_dimensions, Dimensions{2});
  shape.set(CudnnAttribute::convolution_dilations, Dimensions{a.dilation_h, a.dilation_w});
  shape.set(CudnnAttribute::convolution_filter_strides, Dimensions{a.stride_h, a.stride_w});
  shape.set(CudnnAttribute::convolution_pre_paddings, Dimensions{a.pad_top, a.pad_left});
  shape.set(CudnnAttribute::convolution_post_paddings, Dimensions{a.pad_bottom, a.pad_right});
  shape.finalize();

  CudnnDescriptor operation(CudnnKind::operation_convolution_forward);
  operation.set_float(CudnnAttribute::operation_convolution_forward_alpha, 1);
  operation.set_float(CudnnAttribute::operation_convolution_forward_beta, 0);
  operation.set(CudnnAttribute::operation_convolution_forward_convolution, shape);
  operation.set(CudnnAttribute::operation_convolution_forward_x, x);
  operation.set(CudnnAttribute::operation_convolution_forward_w, w);
  operation.set(CudnnAttribute::operation_convolution_forward_y, y);
  operation.finalize();
  return operation;
}

// y = mode(x), or mode(x, b) where there is a b.
CudnnDescriptor pointwise(int mode, const CudnnDescriptor& x, const CudnnDescriptor* b,
                          const CudnnDescriptor& y) {
  CudnnDescriptor function(CudnnKind::pointwise);
  function.set_enum(CudnnAttribute::pointwise_mode, CudnnType::pointwise_mode, mode);
  function.set_enum(CudnnAttribute::pointwise_math_precision, CudnnType::data_type, kCudnnFloat);
  function.finalize();

  CudnnDescriptor operation(CudnnKind::operation_pointwise);
  operation.set(CudnnAttribute::operation_pointwise_pointwise, function);
  operation.set(CudnnAttribute::operation_pointwise_x, x);
  if (b != nullptr) operation.set(CudnnAttribute::operation_pointwise_b, *b);
  operation.set(CudnnAttribute::operation_pointwise_y, y);
  operation.finalize();
  return operation;
}

CudnnDescriptor operation_graph(const Conv2dProblem& a, bool channels_last, CudnnHandle handle) {
  // What lies between two operations has the shape of y.
  const Dimensions output = {a.n, a.k, a.p(), a.q()};
  std::int64_t next_id = 10;
  const auto between = [&] { return tensor(next_id++, output, channels_last, true); };
  const CudnnDescriptor x = tensor(CudnnTensor::x, {a.n, a.c, a.h, a.w}, channels_last);
  const CudnnDescriptor w = tensor(CudnnTensor::w, {a.k, a.c / a.groups, a.r, a.s}, channels_last);
  const CudnnDescriptor y = tensor(CudnnTensor::y, output, channels_last);

  std::vector<CudnnDescriptor> operations;
  if (!has_cudnn_bias(a)) {
    operations.push_back(convolution(a, x, w, y));
  } else {
    const CudnnDescriptor bias = tensor(CudnnTensor::bias, {1, a.k, 1, 1}, channels_last);
    const CudnnDescriptor sums = between();
    operations.push_back(convolution(a, x, w, sums));
    if (a.activation == Activation::none) {
      operations.push_back(pointwise(kCudnnAdd, sums, &bias, y));
    } else {
      const CudnnDescriptor biased = between();
      operations.push_back(pointwise(kCudnnAdd, sums, &bias, biased));
      operations.push_back(pointwise(kCudnnRelu, biased, nullptr, y));
    }
  }
  std::vector<const CudnnDescriptor*> pointers;
  for (const CudnnDescriptor& operation : operations) pointers.push_back(&operation);

  CudnnDescriptor graph(CudnnKind::operation_graph);
  graph.set(CudnnAttribute::operation_graph_handle, handle);
  graph.set(CudnnAttribute::operation_graph_operations, pointers);
  graph.finalize();
  return graph;
}

// ---- What it offers --------------------------------------------------------------------------------

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

// Winograd and FFT make larger errors than the products that they save, atomics another answer each time.
Support computes_as_asked(const std::vector<int>& notes, bool tensor_cores_allowed) {
  for (const int number : notes) {
    switch (static_cast<CudnnNote>(number)) {
      case CudnnNote::tensor_core:
      case CudnnNote::down_convert_inputs:
        if (!tensor_cores_allowed) return Support::no("it multiplies in TF32, and the problem asks for fp32");
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

// What was seen to go wrong on integer data: cuDNN 9.19.0 on an H100, docs/notebook.md.
Support answers_rightly(std::int64_t engine, const std::vector<int>& behavior, const Conv2dProblem& a) {
  if (std::find(behavior.begin(), behavior.end(), kCudnnRuntimeCompilation) != behavior.end())
    return Support::no("it is compiled at run time: such engines answered wrongly, or broke the device");
  if ((engine == 26 || engine == 29) && has_cudnn_bias(a) && a.k % 4 != 0)
    return Support::no("its bias is wrong by 2^-11 where the output channels are no multiple of 4");
  return Support::yes();
}

}  // namespace

CudnnSession& cudnn_session(int device) {
  static std::mutex mutex;
  // Never destroyed: at the end of a process the driver may be gone before cuDNN.
  static auto& sessions = *new std::map<int, std::unique_ptr<CudnnSession>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CudnnSession>& session = sessions[device];
  if (session == nullptr) {
    const DeviceScope scope(device);
    auto made = std::make_unique<CudnnSession>();
    check_cudnn(cudnn_functions().cudnnCreate(&made->handle), "create a handle");
    session = std::move(made);
  }
  return *session;
}

CudnnOffers::CudnnOffers(const Conv2dProblem& problem, bool channels_last, CudnnSession& session)
    : problem_(problem), session_(session) {
  const CudnnDescriptor graph = operation_graph(problem, channels_last, session.handle);
  std::vector<std::vector<std::int64_t>> seen;
  for (const CudnnHeuristic mode : {CudnnHeuristic::a, CudnnHeuristic::b, CudnnHeuristic::fallback})
    add(graph, mode, seen);
}

void CudnnOffers::add(const CudnnDescriptor& graph, CudnnHeuristic mode,
                      std::vector<std::vector<std::int64_t>>& seen) {
  CudnnDescriptor heuristics(CudnnKind::engine_heuristics);
  heuristics.set(CudnnAttribute::engine_heuristics_operation_graph, graph);
  heuristics.set_enum(CudnnAttribute::engine_heuristics_mode, CudnnType::heuristic_mode,
                      static_cast<int>(mode));
  try {
    heuristics.finalize();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::unsupported) return;  // this mode has nothing to say
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
    offers_.push_back(std::move(offer));
  }
}

const CudnnOffers::Answer& CudnnOffers::plan(std::size_t position) {
  Offer& offer = offers_[position];
  if (!offer.answer) offer.answer = build(offer);
  return *offer.answer;
}

CudnnOffers::Answer CudnnOffers::build(const Offer& offer) const {
  if (Support fit = computes_as_asked(offer.notes, problem_.precision != Precision::fp32); !fit)
    return {std::move(fit)};
  if (Support fit = answers_rightly(offer.engine, offer.behavior, problem_); !fit) return {std::move(fit)};
  try {
    CudnnPlan plan{CudnnDescriptor(CudnnKind::execution_plan)};
    plan.descriptor.set(CudnnAttribute::execution_plan_handle, session_.handle);
    plan.descriptor.set(CudnnAttribute::execution_plan_engine_config, offer.config);
    plan.descriptor.finalize();
    plan.workspace_bytes = plan.descriptor.get_int64(CudnnAttribute::execution_plan_workspace_size);
    if (plan.workspace_bytes > kCudnnWorkspaceBytes)
      return {Support::no(fmt::format("it wants {} bytes of workspace, and {} are allowed",
                                      plan.workspace_bytes, kCudnnWorkspaceBytes))};
    return {Support::yes(), std::make_shared<const CudnnPlan>(std::move(plan))};
  } catch (const Error& error) {
    return {Support::no(error.what())};
  }
}

}  // namespace convtune::cuda
