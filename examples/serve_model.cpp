// A model without Python: a package of AOTInductor whose convolutions are convtune's, run by a program in
// C++.
//
//   python: package = torch._inductor.aoti_compile_and_package(torch.export.export(model, (example,)))
//   serve_model model.pt2 2 3 16 16        # prints the first numbers of model(ones)
//
// Without a package it calls the operator by itself, through PyTorch's dispatcher. Compiled with the headers
// of libtorch, linked with libtorch, libtorch_cpu, libc10 and libconvtune_torch;
// tests/python/test_torch_without_python.py shows how.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "convtune/torch.h"

namespace {

using Optional = std::optional<at::Tensor>;

at::Tensor by_the_operator(const at::Tensor& x, const at::Tensor& weight, const Optional& bias) {
  static const auto conv2d = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("convtune::conv2d_forward", "")
                                 .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const Optional&,
                                                   const Optional&, c10::string_view)>();
  return conv2d.call(x, weight, bias, std::nullopt, "1 1 1 1 1 1 1 1 1 auto relu reuse");
}

}  // namespace

int main(int argc, char** argv) {
  const at::NoGradGuard no_gradients;
  if (const char* const why = convtune_torch_register()) {
    std::cerr << why << "\n";
    return 1;
  }
  if (argc < 2) {
    const at::Tensor x = at::rand({2, 3, 16, 16}), weight = at::rand({32, 3, 3, 3}), bias = at::rand({32});
    for (int i = 0; i < 3; ++i) {  // planned and packed, found, and packed anew
      const at::Tensor expected = at::relu(at::conv2d(x, weight, bias, 1, 1));
      if (!at::allclose(by_the_operator(x, weight, bias), expected, 1e-4, 1e-4)) return 2;
      if (i == 1) weight.mul_(-0.5);
    }
    std::cout << "the operator agrees with PyTorch\n";
    return 0;
  }
  std::vector<std::int64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  torch::inductor::AOTIModelPackageLoader model(argv[1]);
  std::vector<at::Tensor> inputs = {at::ones(sizes)};
  at::Tensor y;
  for (int i = 0; i < 3; ++i) y = model.run(inputs)[0].contiguous();
  for (int i = 0; i < 8; ++i) std::cout << y.data_ptr<float>()[i] << " ";
  std::cout << "\n";
}
