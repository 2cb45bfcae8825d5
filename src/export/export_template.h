// The files of src/export/templates: Python with words in it for a problem's numbers; and what the formats
// share.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/export.h"

namespace convtune {

using Words = std::map<std::string, std::string, std::less<>>;

// Returns the file with each "@WORD@" replaced; other '@' stay, and so do those in a word's replacement.
std::string fill_template(std::string_view file, const Words& words);

// A layer's numbers, its shapes, and how its functions are called in a file of `layers` layers.
Words layer_words(const ExportLayer& layer, std::size_t layers);

// Sizes along depth, height and width.
using Extents = std::array<std::int64_t, 3>;

// A layer as PyTorch names its parts: a transposed one makes c channels of k.
struct LayerShape {
  explicit LayerShape(const ConvProblem& problem);

  std::int64_t in_channels, out_channels;
  Extents input, output, filter, stride, padding, dilation, output_padding{};
};

bool is_transposed(const ConvProblem& problem);

// "torch.float32"
std::string dtype_of(const ConvProblem& problem);

// The nn.Module's constructor, its fallback off the GPU, and its name: words of module.py but for FORWARD and
// KEPT.
Words module_words(const ExportModule& module, const std::string& name);

// Throws Error{unsupported} where the file, which has nn.Conv and nn.ConvTranspose layers and kernels for
// tensors of those types, cannot be the module; Error{invalid_argument} unless the names can stand beside the
// other names of the file.
void check_module(const ExportModule& module, std::vector<DType> types, const std::string& name,
                  std::initializer_list<std::string_view> taken);

// Throws Error{unsupported} for the problem, with the words that all such refusals begin with.
[[noreturn]] void refuse_export(const ConvProblem& problem, const std::string& why);

}  // namespace convtune
