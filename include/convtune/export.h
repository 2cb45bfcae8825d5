// A problem, or a class of convolutions, as source code that stands alone: for who wants the kernel and not
// the library.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/convolution.h"
#include "convtune/problem.h"
#include "convtune/target.h"

namespace convtune {

// A convolution of the new nn.Module.
struct ExportLayer {
  // `conv1`; of height 1 in one dimension. Backward data is an nn.ConvTranspose.
  explicit ExportLayer(const ConvProblem& of);

  ConvProblem problem;
  std::string name = "conv1";  // the module's attribute
  int rank;                    // dimensions, 1 to 3: an nn.Conv1d of tensors [N, C, W]
  // The constructor's arguments as Python writes them, "in_channels, 64, kernel_size=3"; empty: the problem's
  // numbers.
  std::string arguments;
  bool varies = false;  // the arguments name parameters of __init__, which may be other numbers than these
  std::string padding_word;  // "'same'": its padding as the layer keeps it; empty: the problem's numbers
};

// The new nn.Module from outside: how it is constructed, and which layers it applies to its tensor,
// one after the other. Constructed in the same order with the same arguments, its parameters have the names,
// the shapes and, after the same seed, the values of the class that it was read from.
struct ExportModule {
  ExportModule(const ConvProblem& of) : layers{ExportLayer(of)}, chain{0} {}  // NOLINT: a problem is a module
  ExportModule() = default;

  std::string parameters;           // the parameters of __init__, self apart: "in_channels, stride=1"
  std::vector<ExportLayer> layers;  // in the order of construction
  std::vector<std::size_t> chain;   // the layers in the order of forward
};

struct ReadModuleOptions {
  std::string class_name = "Model";
  // The class's forward calls kernels, which are not followed: its layers are taken as what it computes, in
  // the order in which it names them, unless something else of the class or of a kernel shows that it
  // computes more.
  bool of_kernels = false;
  // The problem of a class of one convolution, where the file has no get_inputs().
  std::optional<ConvProblem> problem;
  std::string python = "python3";  // that reads the source
};

// The class as a module, in fp32's default precision. Python's `ast` reads it, and nothing of it is run. None
// where the source has no such class or no convolution in it. Throws Error{invalid_argument} with the line
// where its numbers are not known; Error{unsupported} where it is more than convolutions.
std::optional<ExportModule> read_module(const std::string& source, const ReadModuleOptions& options = {});

struct RefineDocument;  // convtune/refine.h

struct DocumentModuleOptions {
  std::optional<std::string> class_source;  // a file with the class that the document's code stands for
  // None: get_inputs() of that file has it, or it is the built-in case of such a layer.
  std::optional<ConvProblem> problem;
  std::string python = "python3";
};
struct DocumentModule {
  ExportModule module;
  std::string note;  // whence its numbers are, and how the profiled grid speaks for them
};

// The convolutions that a document asks for: those of the class file, else of the code's ModelNew, whose
// kernels are not followed. None where there is no nn.Conv layer. Throws as read_module() does, and
// Error{invalid_argument} where no config of the code launches the profiled grid for such a case.
std::optional<DocumentModule> find_module(const RefineDocument& document,
                                          const DocumentModuleOptions& options = {});

struct ExportOptions {
  std::string module_name = "ModelNew";  // for the nn.Module; a Python name
};

// One Python file: imports, autotuned Triton kernels, their wrappers, and an nn.Module that holds the layers
// and computes them by PyTorch off the GPU. Its autotune lists are a start that was not measured for the
// problem; refine() goes on from a profile. Throws Error{unsupported} for what it cannot say: NHWC, paddings
// that differ at the two ends.
std::string export_triton(const ExportModule& module, const ExportOptions& options = {});

struct CudaExportOptions : ExportOptions {
  std::string algorithm;  // an algorithm of ours; empty: as plan() chooses
  Config config;          // of that algorithm; empty: its first guess
  // TF32 operands half way between two numbers become the even one, as cuDNN rounds those of its 1x1 layers;
  // else the larger one, as the library's own kernels and cuDNN's other layers do. Throws Error{unsupported}
  // for a kernel that rounds while it stores.
  bool ties_to_even = false;
};

struct CudaExport {
  std::string text;  // the file
  // A kernel of the file, in the order of the module's layers.
  struct Kernel {
    Plan plan;
    std::optional<double> estimated_us;  // by the model, where the algorithm has one
  };
  std::vector<Kernel> kernels;
  std::string note;  // for people: where a kernel is not what plan() chooses; else empty
};

// One Python file: CUDA C++ for the problem's exact extents with the config put in, built by PyTorch's
// load_inline for the device's architecture; its wrappers; and an nn.Module as above, which packs its weights
// when they change. The kernel is the plan's: tuned where there is a record. Where the plan is the vendor's
// library, which has no source, it is our first guess. Nothing is compiled and nothing runs. Throws
// Error{unsupported} where no algorithm of ours runs the problem, and for paddings that differ at the two
// ends.
CudaExport export_cuda(const ExportModule& module, Device device, const CudaExportOptions& options = {});
// For a GPU that need not be here: no record speaks of it.
CudaExport export_cuda(const ExportModule& module, const Target& target,
                       const CudaExportOptions& options = {});

}  // namespace convtune
