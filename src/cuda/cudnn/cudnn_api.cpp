// See cudnn_api.h.
#include "cuda/cudnn/cudnn_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/fork_gate.h"
#include "base/library.h"

namespace convtune::cuda {
namespace {

constexpr std::size_t kOldest = 90000, kTooNew = 100000;  // cuDNN 9.0.0 is 90000

std::string version_text(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

struct Loaded {
  CudnnFunctions functions;
  std::string path;
  Support found = Support::yes();
  bool unloadable = false;  // it is installed, and did not load
};

Loaded load() {
  Loaded loaded;
  const Library library = Library::open({.what = "cuDNN",
                                         .variable = "CONVTUNE_CUDNN",
                                         .sonames = {"libcudnn.so.9"},
                                         .wheel_folders = {"nvidia/cudnn/lib"}});
  if (!library) {
    loaded.unloadable = library.is_unloadable();
    loaded.found = Support::no("cuDNN 9 was not found: " + library.why_not());
    return loaded;
  }
  loaded.path = library.path();
  try {
    CudnnFunctions& f = loaded.functions;
    library.bind(f.cudnnGetVersion, "cudnnGetVersion");
    library.bind(f.cudnnGetErrorString, "cudnnGetErrorString");
    library.bind(f.cudnnGetLastErrorString, "cudnnGetLastErrorString");
    library.bind(f.cudnnCreate, "cudnnCreate");
    library.bind(f.cudnnSetStream, "cudnnSetStream");
    library.bind(f.cudnnBackendCreateDescriptor, "cudnnBackendCreateDescriptor");
    library.bind(f.cudnnBackendDestroyDescriptor, "cudnnBackendDestroyDescriptor");
    library.bind(f.cudnnBackendSetAttribute, "cudnnBackendSetAttribute");
    library.bind(f.cudnnBackendGetAttribute, "cudnnBackendGetAttribute");
    library.bind(f.cudnnBackendFinalize, "cudnnBackendFinalize");
    library.bind(f.cudnnBackendExecute, "cudnnBackendExecute");
    const std::size_t version = f.cudnnGetVersion();
    if (version < kOldest || version >= kTooNew)
      loaded.found =
          Support::no(fmt::format("cuDNN 9 is needed, and {} is {}", loaded.path, version_text(version)));
  } catch (const Error& error) {
    loaded.found = Support::no(error.what());
  }
  return loaded;
}

const Loaded& loaded() {
  return once([] { return load(); });
}

}  // namespace

const Support& cudnn_found() {
  return loaded().found;
}

const CudnnFunctions& cudnn_functions() {
  if (!loaded().found) throw Error(ErrorKind::unsupported, loaded().found.reason());
  return loaded().functions;
}

std::string cudnn_version() {
  return loaded().found ? version_text(loaded().functions.cudnnGetVersion()) : loaded().found.reason();
}

bool cudnn_is_unloadable() {
  return loaded().unloadable;
}

std::string describe_cudnn() {
  return loaded().found ? cudnn_version() + "; " + loaded().path : loaded().found.reason();
}

void check_cudnn(CudnnStatus status, std::string_view doing) {
  if (status == 0) return;
  const CudnnFunctions& cudnn = cudnn_functions();
  std::array<char, 512> detail{};
  cudnn.cudnnGetLastErrorString(detail.data(), detail.size());
  detail.back() = '\0';
  throw Error(status >= 3000 && status < 4000 ? ErrorKind::unsupported : ErrorKind::internal,
              fmt::format("cuDNN {} failed to {}: {}{}{}", version_text(cudnn.cudnnGetVersion()), doing,
                          cudnn.cudnnGetErrorString(status), detail[0] != '\0' ? ", " : "", detail.data()));
}

CudnnDescriptor::CudnnDescriptor(CudnnKind kind) : kind_(kind) {
  check_cudnn(cudnn_functions().cudnnBackendCreateDescriptor(static_cast<int>(kind), &object_),
              "create a descriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (object_ != nullptr) cudnn_functions().cudnnBackendDestroyDescriptor(object_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : kind_(other.kind_), object_(std::exchange(other.object_, nullptr)) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(kind_, other.kind_);
  std::swap(object_, other.object_);
  return *this;
}

void CudnnDescriptor::set(CudnnAttribute attribute, CudnnType type, std::size_t count, const void* elements) {
  const CudnnStatus status =
      cudnn_functions().cudnnBackendSetAttribute(object_, static_cast<int>(attribute), static_cast<int>(type),
                                                 static_cast<std::int64_t>(count), elements);
  if (status != 0)
    check_cudnn(status, fmt::format("set attribute {} of a descriptor of type {}",
                                    static_cast<int>(attribute), static_cast<int>(kind_)));
}

void CudnnDescriptor::set(CudnnAttribute attribute, const std::vector<std::int64_t>& values) {
  set(attribute, CudnnType::int64, values.size(), values.data());
}

void CudnnDescriptor::set(CudnnAttribute attribute, const std::vector<void*>& pointers) {
  set(attribute, CudnnType::void_pointer, pointers.size(), pointers.data());
}

void CudnnDescriptor::set(CudnnAttribute attribute, const std::vector<const CudnnDescriptor*>& descriptors) {
  std::vector<CudnnObject> objects;
  for (const CudnnDescriptor* descriptor : descriptors) objects.push_back(descriptor->object_);
  set(attribute, CudnnType::descriptor, objects.size(), objects.data());
}

void CudnnDescriptor::set(CudnnAttribute attribute, const CudnnDescriptor& descriptor) {
  set(attribute, CudnnType::descriptor, 1, &descriptor.object_);
}

void CudnnDescriptor::set(CudnnAttribute attribute, CudnnHandle handle) {
  set(attribute, CudnnType::handle, 1, &handle);
}

void CudnnDescriptor::set(CudnnAttribute attribute, CudnnData type) {
  set_enum(attribute, CudnnType::data_type, static_cast<int>(type));
}

void CudnnDescriptor::set_float(CudnnAttribute attribute, float value) {
  set(attribute, CudnnType::float32, 1, &value);
}

void CudnnDescriptor::set_double(CudnnAttribute attribute, double value) {
  set(attribute, CudnnType::float64, 1, &value);
}

void CudnnDescriptor::set_text(CudnnAttribute attribute, std::string_view text) {
  set(attribute, CudnnType::character, text.size(), text.data());
}

void CudnnDescriptor::set_true(CudnnAttribute attribute) {
  const bool value = true;
  set(attribute, CudnnType::boolean, 1, &value);
}

void CudnnDescriptor::set_enum(CudnnAttribute attribute, CudnnType type, int value) {
  set(attribute, type, 1, &value);
}

void CudnnDescriptor::finalize() {
  if (const CudnnStatus status = cudnn_functions().cudnnBackendFinalize(object_); status != 0)
    check_cudnn(status, fmt::format("finalize a descriptor of type {}", static_cast<int>(kind_)));
}

std::int64_t CudnnDescriptor::get_int64(CudnnAttribute attribute) const {
  std::int64_t value = 0, count = 0;
  check_cudnn(
      cudnn_functions().cudnnBackendGetAttribute(object_, static_cast<int>(attribute),
                                                 static_cast<int>(CudnnType::int64), 1, &count, &value),
      "read a number");
  return value;
}

std::vector<int> CudnnDescriptor::get_enums(CudnnAttribute attribute, CudnnType type,
                                            std::int64_t most) const {
  std::vector<int> values(static_cast<std::size_t>(most));
  std::int64_t count = 0;
  check_cudnn(cudnn_functions().cudnnBackendGetAttribute(object_, static_cast<int>(attribute),
                                                         static_cast<int>(type), most, &count, values.data()),
              "read an enumeration");
  values.resize(static_cast<std::size_t>(std::min(count, most)));
  return values;
}

std::vector<CudnnDescriptor> CudnnDescriptor::get_descriptors(CudnnAttribute attribute, CudnnKind kind,
                                                              std::int64_t most) const {
  // cuDNN fills in descriptors that the caller made.
  std::vector<CudnnDescriptor> descriptors;
  std::vector<CudnnObject> objects;
  for (std::int64_t i = 0; i < most; ++i) objects.push_back(descriptors.emplace_back(kind).object_);
  std::int64_t count = 0;
  check_cudnn(cudnn_functions().cudnnBackendGetAttribute(object_, static_cast<int>(attribute),
                                                         static_cast<int>(CudnnType::descriptor), most,
                                                         &count, objects.data()),
              "read a list of descriptors");
  descriptors.erase(descriptors.begin() + std::min(count, most), descriptors.end());
  return descriptors;
}

}  // namespace convtune::cuda
