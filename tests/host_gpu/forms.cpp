// See forms.h.
#include "forms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>

#include "base/random_bits.h"
#include "base/sha256.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/kernel.h"
#include "cuda/launch/tensor_map.h"

namespace convtune::host_gpu_tests {
namespace {

using namespace cuda;

constexpr std::size_t kWords = 64 << 10;  // words of operands, and of results
constexpr std::uint32_t kNoResult = 0xabcdef01u;
constexpr std::size_t kSharedBytes = (64 << 10) + 2048;

struct Place {  // a place of forms.cuh
  int at[5] = {}, on[2] = {};
  unsigned bytes = 0;
};
struct Form {
  std::string kernel;
  unsigned threads = 128;
  std::vector<TensorMapLayout> layout = {};  // one, where the form takes a map
  Place place = {};
  bool takes_map = false;
};

std::vector<Form> product_forms() {
  std::vector<Form> forms;
  for (const char* kernel :
       {"Numbers::tf32, 8", "Numbers::bf16, 16", "Numbers::f16, 16", "Numbers::bf16, 8", "Numbers::f16, 8"})
    forms.push_back({fmt::format("warp_product<{}>", kernel), 32});
  forms.push_back({"matrices", 32});
  for (const char* kernel : {"copies", "gathers", "numbers"}) forms.push_back({kernel});
  const std::vector<int> widths = {8, 16, 24, 32, 48, 64, 80, 96, 112, 128}, wider = {160, 192, 224, 256},
                         between = {144, 176, 208, 240}, others = {40, 56, 72, 88, 104, 200, 248};
  const auto each = [&](std::initializer_list<const std::vector<int>*> lists, const char* text) {
    for (const std::vector<int>* list : lists)
      for (const int width : *list) forms.push_back({fmt::format(fmt::runtime(text), width)});
  };
  each({&widths, &wider, &between, &others}, "tf32_product<{}>");
  each({&widths, &wider}, "tf32_product_of_registers<{}>");
  each({&widths}, "tf32_three_products<{}>");
  for (const int width : {32, 64, 96})
    forms.push_back({fmt::format("tf32_three_products_anywhere<{}>", width)});
  for (const char* bf16 : {"true", "false"}) {
    each({&widths}, fmt::format("half_product_of_registers<{}, {{}}>", bf16).c_str());
    for (const int row_bytes : {128, 64})
      each({&widths, &wider, &between}, fmt::format("half_product<{}, {{}}, {}>", bf16, row_bytes).c_str());
    each({&widths, &wider, &between}, fmt::format("half_product_of_columns<{}, {{}}>", bf16).c_str());
  }
  return forms;
}

unsigned row_bytes(const TensorMapLayout& a) {
  return a.box[0] * static_cast<unsigned>(size_of(a.type));
}
// A dense tensor's map, with a pitch of its rows that is a multiple of 16 bytes.
TensorMapLayout layout_of(std::vector<std::uint64_t> extents, std::vector<std::uint32_t> box, Swizzle swizzle,
                          ElementType type, std::vector<std::uint32_t> steps = {}) {
  TensorMapLayout a{
      .extents = extents, .strides = {}, .box = std::move(box), .swizzle = swizzle, .type = type};
  a.steps = std::move(steps);
  auto stride = static_cast<std::uint64_t>(size_of(type));
  for (std::size_t i = 0; i + 1 < extents.size(); ++i) {
    stride = (stride * extents[i] + 15) / 16 * 16;
    a.strides.push_back(stride);
  }
  return a;
}

Form copy_form(std::string kernel, TensorMapLayout layout, Place place) {
  place.bytes = row_bytes(layout);
  for (std::size_t i = 1; i < layout.box.size(); ++i) {
    const std::uint32_t step = layout.steps.empty() ? 1 : layout.steps[i];
    place.bytes *= (layout.box[i] + step - 1) / step;
  }
  return {std::move(kernel), 128, {std::move(layout)}, place, true};
}

// Boxes inside and over every edge, in all swizzles and both sizes of elements; walks with and without steps.
std::vector<Form> copy_forms() {
  std::vector<Form> forms;
  const auto add = [&](const char* kernel, TensorMapLayout layout, Place place) {
    forms.push_back(copy_form(kernel, std::move(layout), place));
  };
  constexpr ElementType kF32 = ElementType::f32, kBf16 = ElementType::bf16;
  for (const auto& [swizzle, bytes] :
       {std::pair{Swizzle::none, 128u}, std::pair{Swizzle::bytes_32, 32u}, std::pair{Swizzle::bytes_64, 64u},
        std::pair{Swizzle::bytes_128, 128u}})
    for (const ElementType type : {kF32, kBf16}) {
      const std::uint32_t row = bytes / (type == kF32 ? 4 : 2);
      const TensorMapLayout rows = layout_of({70, 40}, {row, 24}, swizzle, type);
      add("load<Load::rows>", rows, {{8, 5}});
      add("load<Load::rows>", rows, {{-16, -7}});
      add("load<Load::rows_once>", rows, {{64, 30}});
      const TensorMapLayout box = layout_of({50, 9, 7, 3, 4}, {row, 5, 4, 2, 2}, swizzle, type);
      add("load<Load::box>", box, {{0, 1, 2, 1, 1}});
      add("load<Load::box>", box, {{-8, -2, -1, -1, 3}});
      add("load<Load::box_once>", box, {{40, 6, 5, 2, 0}});
      add("load<Load::box>", layout_of({50, 19, 17, 3, 2}, {row, 6, 7, 1, 1}, swizzle, type, {1, 2, 3, 1, 1}),
          {{8, -1, 3, 1, 1}});
      add("store<3>", layout_of({50, 9, 7}, {row, 5, 4}, swizzle, type), {{0, 1, 2}});
      add("store<3>", layout_of({50, 9, 7}, {row, 5, 4}, swizzle, type), {{40, 7, 5}});
      add("store<5>", box, {{8, 0, 1, 0, 2}});
      add("store<5>", box, {{40, 7, 5, 2, 3}});
    }
  for (const bool grouped : {false, true})
    for (const std::uint32_t channels : {32u, 64u})
      for (const int step : {1, 2}) {
        // Filters of 3x3 with padding of 1, at the first pixel and where rows and images end.
        TensorMapLayout a = layout_of({64, 11, 9, 3}, {channels, 48},
                                      channels == 64 ? Swizzle::bytes_128 : Swizzle::bytes_64, kBf16);
        const auto steps = static_cast<std::uint32_t>(step);
        a.walk = ImageWalk{{-1, -1}, {-1, -1}, {steps, steps, 1}};
        if (grouped) {
          a.extents.push_back(2), a.strides.push_back(64);
          a.walk->first_corner.push_back(0), a.walk->last_corner.push_back(0);
        }
        const char* const kernel = grouped ? "load<Load::group_pixels>" : "load<Load::pixels>";
        for (const Place& place : {Place{{0, -1, -1, 0, 0}, {0, 0}}, Place{{0, 3, 7, 1, 1}, {2, 1}},
                                   Place{{32, 9, 7, 2, 1}, {1, 2}}}) {
          forms.push_back({kernel, 128, {a}, place, true});
          forms.back().place.bytes = channels * 48 * 2;
        }
      }
  forms.push_back({"load<Load::bulk>", 128, {}, {{36}, {}, 4096}, true});
  forms.push_back({"store<0>", 128, {}, {{20}, {}, 3072}, true});
  return forms;
}

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string full_name(const std::string& kernel) {
  std::string name = "convtune::forms::" + kernel;
  for (const char* type : {"<Numbers::", "<Load::"})
    if (const std::size_t at = name.find(type); at != name.npos) name.insert(at + 1, "convtune::forms::");
  return name;
}

// The kernels of a few jobs: one of them all would take minutes.
CompileJob job_of(const std::vector<std::string>& kernels, const std::string& arch) {
  CompileJob job{.source = "#include \"forms.cuh\"\n",
                 .headers = {{"forms.cuh", read_text(CONVTUNE_HOST_GPU_DIR "/forms.cuh")}},
                 .options = {},
                 .arch = arch,
                 .kernels = kernels};
  for (const char* file : {"gather", "several", "shared", "wgmma_half", "wgmma_half_shared", "wgmma_tf32",
                           "wgmma_tf32_registers", "wgmma_three"})
    for (KernelSource& source : kernel_sources(fmt::format("cuda/ptx/{}.cuh", file)))
      if (std::find(job.headers.begin(), job.headers.end(), source) == job.headers.end())
        job.headers.push_back(std::move(source));
  return job;
}

class Forms {
 public:
  Forms() : gpu_(cuda::backend({Device::Kind::cuda, 0})) {
    // Some boxes of float tensors lie behind the operands, where results did when forms.txt was taken.
    in_ = gpu_.allocate(2 * kWords * 4), out_ = gpu_.allocate(kWords * 4);
    std::vector<std::uint32_t> words(2 * kWords, kNoResult);
    for (std::size_t i = 0; i < kWords; ++i) words[i] = static_cast<std::uint32_t>(random_bits(7, i) >> 16);
    gpu_.upload(in_.get(), words.data(), 2 * kWords * 4);
  }

  std::vector<std::uint32_t> run(const Kernel& kernel, const Form& form) {
    std::vector<std::uint32_t> words(kWords, kNoResult);
    gpu_.upload(out_.get(), words.data(), kWords * 4);
    const void* const in = in_.get();
    void* const out = out_.get();
    if (form.takes_map) {
      TensorMap map{};
      const bool stores = form.kernel.starts_with("store");
      if (!form.layout.empty() && !make_tensor_map(0, stores ? out : in, form.layout[0], map))
        throw Error(ErrorKind::unsupported, "this driver makes no tensor maps");
      kernel.launch({}, {form.threads}, kSharedBytes, {}, map, form.place, in, out);
    } else {
      kernel.launch({}, {form.threads}, kSharedBytes, {}, in, out);
    }
    gpu_.synchronize({});
    gpu_.download(words.data(), out, kWords * 4);
    return words;
  }

  const DeviceInfo& info() const { return gpu_.info(); }

 private:
  Backend& gpu_;
  std::shared_ptr<void> in_, out_;
};

}  // namespace

std::string FormResult::hash() const {
  return sha256({reinterpret_cast<const char*>(words.data()), words.size() * 4}).substr(0, 16);
}

std::vector<FormResult> run_forms() {
  std::vector<Form> forms = product_forms();
  for (Form& form : copy_forms()) forms.push_back(std::move(form));
  Forms device;
  std::vector<FormResult> results;
  std::map<std::string, Kernel> kernels;
  std::vector<std::string> names;
  for (const Form& form : forms)
    if (std::find(names.begin(), names.end(), full_name(form.kernel)) == names.end())
      names.push_back(full_name(form.kernel));
  constexpr std::size_t kOfAJob = 24;
  for (std::size_t first = 0; first < names.size(); first += kOfAJob) {
    const CompileJob job =
        job_of({names.begin() + static_cast<std::ptrdiff_t>(first),
                names.begin() + static_cast<std::ptrdiff_t>(std::min(first + kOfAJob, names.size()))},
               "sm_90a");
    const CompiledModule module = compile(job);
    for (const std::string& name : job.kernels)
      kernels.emplace(name, Kernel(0, module, name, {.dynamic_smem_bytes = kSharedBytes}));
  }
  std::map<std::string, int> count;
  for (const Form& form : forms) {
    const int number = count[form.kernel]++;
    results.push_back({form.takes_map ? fmt::format("{}, {}", form.kernel, number) : form.kernel,
                       device.run(kernels.at(full_name(form.kernel)), form)});
  }
  return results;
}

}  // namespace convtune::host_gpu_tests
