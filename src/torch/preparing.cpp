#include "torch/preparing.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "torch/how.h"
#include "torch/plans.h"

namespace convtune::torch {

namespace {

// How many entries that do the same and were never found may stay: those are of weights that are computed
// anew for every call. It is more than a model has equal layers.
constexpr std::size_t kSpared = 64;

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error("convtune::conv2d_forward: " + why);
}

// True where PyTorch takes the tensor to lie channels last: its strides fall in the order N, D, H, W, C, of
// the axes that it has.
bool channels_last(const Form& form) {
  if (form.strides[1] == 0 || std::ranges::count(form.sizes, 0) > 0) return false;
  std::int64_t least = form.strides[1] * form.sizes[1];
  for (std::size_t axis = form.sizes.size() - 1;
       axis >= form.sizes.size() - static_cast<std::size_t>(form.axes); --axis) {
    if (form.strides[axis] < least) return false;
    least = form.strides[axis] * form.sizes[axis];
  }
  return form.strides[0] >= least && least != form.strides[1];
}

std::int32_t dtype_of(TensorHandle tensor) {
  std::int32_t dtype = -1;
  check(shim->get_dtype(tensor, &dtype), "get_dtype");
  return dtype;
}

// "clip:0:6" into the problem.
void set_activation(convtune_problem& problem, const std::string& text) {
  convtune_problem with = CONVTUNE_PROBLEM_INIT;
  check_face(convtune_problem_parse(("ic1ih1oc1kh1 act=" + text).c_str(), &with));
  problem.activation = with.activation, problem.alpha = with.alpha, problem.beta = with.beta;
}

// The precision of float32 products that PyTorch's setting allows on that device.
std::int32_t precision_of(const std::string& text, bool float32, bool on_gpu) {
  if (text == "fp32") return CONVTUNE_FP32;
  if (text == "tf32") return CONVTUNE_TF32;
  if (text != "auto") refuse("there is no precision \"" + text + "\"");
  if (!float32) return CONVTUNE_AUTOMATIC;
  if (!on_gpu) return CONVTUNE_FP32;
  constexpr std::int32_t kNone = 0, kIeee = 1;  // values of at::Float32Precision
  const Precision set = float32_precision();
  return set.known && (set.number == kNone || set.number == kIeee) ? CONVTUNE_FP32 : CONVTUNE_TF32;
}

std::string text_of(const convtune_problem& problem) {
  convtune_text text{};
  check_face(convtune_problem_text(&problem, &text));
  std::string copied(text.data, text.size);
  convtune_text_free(&text);
  return copied;
}

// The plan by the line of optimize() for that problem on that kind of device, where there is one, in its
// layout; else the usual plan.
Plan chosen(const convtune_problem& problem, const std::string& device, const How& how) {
  Plan usual = plan_of(problem, device, nullptr, nullptr);
  if (how.choices.empty()) return usual;
  const std::string own = fingerprint(usual.convolution.get()), asked = text_of(problem);
  for (const auto& choice : how.choices) {
    if (choice[0] != own || choice[1] != asked) continue;
    convtune_problem proven = problem;
    proven.layout = choice[2] == "nhwc" ? CONVTUNE_NHWC : CONVTUNE_NCHW;
    try {
      return plan_of(proven, device, choice[3].c_str(), choice[4].c_str());
    } catch (const std::exception&) {  // proven by another version of convtune, whose configs were others
    }
  }
  return usual;
}

}  // namespace

std::shared_ptr<const Entry> prepare(const Call& call) {
  const How how = read_how(call.how);
  auto entry = std::make_shared<Entry>();
  Launch& launch = entry->launch;
  Form weight;
  if (!read_form(call.x, launch.x) || launch.x.axes != how.axes)
    refuse("x must have a batch, channels and " + std::to_string(how.axes) + " axes");
  if (!read_form(call.weight, weight) || weight.axes != how.axes)
    refuse("the weight must have as many dimensions as x: (K, C/groups, R, S) of images");
  const Form& x = launch.x;
  if (weight.dtype != x.dtype) refuse("x and the weight are of different types");
  if (how.transposed ? weight.sizes[0] != x.sizes[1] : weight.sizes[1] * how.groups != x.sizes[1])
    refuse("x's channels are not those of the weight and the groups");
  const bool on_gpu = x.device_type == shim->cuda, float32 = x.dtype == shim->float32;
  if (!is_served(x))
    refuse("x must be on a CPU, or on an NVIDIA GPU with libtorch_cuda loaded before convtune");
  if (weight.device_type != x.device_type || weight.device_index != x.device_index)
    refuse("x and the weight are on different devices");

  convtune_problem problem = CONVTUNE_PROBLEM_INIT;
  const auto set = [](const auto& numbers, std::int64_t& d, std::int64_t& h, std::int64_t& w) {
    std::int64_t* const to[] = {&d, &h, &w};
    for (std::size_t i = 0; i < 3; ++i) *to[i] = *(numbers.end() - 3 + i);
  };
  How::Axes behind = how.behind;
  Sizes image = x.sizes;  // sizes of the problem's x: a transposed layer's output
  if (how.transposed)
    for (std::size_t i = 0; i < 3; ++i) {
      image[2 + i] = (x.sizes[2 + i] - 1) * how.stride[i] + how.dilation[i] * (weight.sizes[2 + i] - 1) + 1 +
                     how.output_padding[i] - how.before[i] - how.behind[i];
      if (how.output_padding[i] >= how.stride[i]) behind[i] -= how.output_padding[i];
    }
  problem.direction = how.transposed ? CONVTUNE_BACKWARD_DATA : CONVTUNE_FORWARD;
  problem.n = x.sizes[0], problem.c = weight.sizes[1] * how.groups;
  problem.k = weight.sizes[0], problem.groups = how.groups;
  set(image, problem.d, problem.h, problem.w);
  set(weight.sizes, problem.t, problem.r, problem.s);
  set(how.stride, problem.stride_d, problem.stride_h, problem.stride_w);
  set(how.dilation, problem.dilation_d, problem.dilation_h, problem.dilation_w);
  set(how.before, problem.pad_front, problem.pad_top, problem.pad_left);
  set(behind, problem.pad_back, problem.pad_bottom, problem.pad_right);
  problem.dtype = c_dtype(x.dtype);
  problem.precision = precision_of(how.precision, float32, on_gpu);
  problem.bias = call.bias != nullptr;
  problem.residual = call.residual != nullptr;
  set_activation(problem, how.activation);
  if (how.eager && !float32) {
    if (on_gpu)
      problem.rounding = CONVTUNE_ROUND_EAGERLY;
    else if (problem.residual || how.activation != "none")  // PyTorch there rounds a sum with its bias
      refuse("eager rounding on a CPU leaves residual and activation to PyTorch: call it without them");
  }
  if (call.bias) {
    const std::int64_t channels = how.transposed ? problem.c : problem.k;
    std::int64_t dimensions = 0, *sizes = nullptr, *strides = nullptr;
    check(shim->get_dim(call.bias, &dimensions), "get_dim");
    check(shim->get_sizes(call.bias, &sizes), "get_sizes");
    check(shim->get_strides(call.bias, &strides), "get_strides");
    if (!on_device_of(call.bias, x)) refuse("the bias must be on x's device");
    if (dimensions != 1 || sizes[0] != channels || (channels > 1 && strides[0] != 1))
      refuse("the bias must have a number for each channel of y, one after the other");
    if (const std::int32_t dtype = dtype_of(call.bias); dtype != x.dtype)
      problem.bias_dtype = 1 + c_dtype(dtype);
  }
  const bool last = channels_last(x) || (x.axes > 1 && channels_last(weight));
  problem.layout = last ? CONVTUNE_NHWC : CONVTUNE_NCHW;

  launch.stream = current_stream(x);
  const bool capturing = is_capturing(x, launch.stream);
  const SharedPlan plan =
      planned(text_of(problem) + "\n" + std::string(call.how), x, capturing, "convtune::conv2d_forward",
              [&](const std::string& device) { return chosen(problem, device, how); });
  entry->own = plan->convolution;
  launch.convolution = entry->own.get();
  launch.last = plan->runs_last();
  launch.transposed = how.transposed;
  launch.y = x;
  launch.y.sizes = plan->y;
  launch.y = dense(launch.y, last);
  if (call.residual && (!read_form(call.residual, launch.residual) ||
                        launch.residual.sizes != launch.y.sizes || launch.residual.axes != x.axes ||
                        launch.residual.dtype != x.dtype || !launch.residual.on_device_of(x)))
    refuse("the residual must be of the output's shape and type, on its device");

  const bool watched =
      how.reuse && !capturing && counts_versions(call.weight) && (!call.bias || counts_versions(call.bias));
  entry->weight_sizes = weight.sizes;
  if (watched) {  // before packing, so that a change meanwhile is seen by the next call
    entry->weight = Watched::of(call.weight, version(call.weight));
    if (call.bias) entry->bias = Watched::of(call.bias, version(call.bias));
    for (const TensorHandle tensor : {call.weight, call.bias})
      if (tensor) {
        entry->kept.push_back(Tensor::sharing(tensor));
        entry->kept.push_back(Tensor::holding_memory_of(tensor));
      }
  }
  Packed packed = pack(launch.convolution, call.weight, weight, call.bias, launch.stream);
  launch.packed = address(packed.memory.get());
  entry->kept.push_back(std::move(packed.memory));
  if (packed.weight) entry->kept.push_back(std::move(packed.weight));
  entry->how = call.how;
  if (how.precision == "auto" && float32 && on_gpu) entry->precision = float32_precision().number;
  if (watched) {
    static std::atomic<std::int64_t> owners = 0;
    entry->owner = --owners;
    Table& table = Table::of_process();
    table.add(entry);
    while (const std::int64_t old = table.superseded_by(*entry)) table.drop(old);
    if (const std::int64_t unused = table.unused_like(*entry, kSpared)) table.drop(unused);
  }
  return entry;
}

}  // namespace convtune::torch
