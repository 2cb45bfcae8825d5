// See onednn_api.h.
#include "cpu/onednn/onednn_api.h"

#include <fmt/format.h>
#include <omp.h>

#include "base/fork_gate.h"
#include "base/library.h"

namespace convtune::cpu {
namespace {

constexpr unsigned kOpenMp = 2;  // DNNL_RUNTIME_OMP
constexpr int kOutOfMemory = 1, kInvalidArguments = 2, kUnimplemented = 3,
              kRuntimeError = 5;  // dnnl_status_t

struct Loaded {
  OnednnFunctions functions;
  std::string path;
  Support found = Support::yes();
  bool unloadable = false;  // it is installed, and did not load
};

std::string version_text(const OnednnVersion& version) {
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

// The wheel's library lies in PREFIX/lib, as seen from PREFIX/lib/python3.N/site-packages.
Library open(const char* soname) {
  return Library::open({.what = "oneDNN",
                        .variable = "CONVTUNE_ONEDNN",
                        .sonames = {soname},
                        .wheel_folders = {"../.."},
                        .in_toolkit = false});
}

void bind(OnednnFunctions& f, const Library& library) {
  const auto bind = [&](auto& function, const char* name) { library.bind(function, name); };
  bind(f.dnnl_engine_create, "dnnl_engine_create");
  bind(f.dnnl_stream_create, "dnnl_stream_create");
  bind(f.dnnl_stream_wait, "dnnl_stream_wait");
  bind(f.dnnl_stream_destroy, "dnnl_stream_destroy");
  bind(f.dnnl_memory_desc_equal, "dnnl_memory_desc_equal");
  bind(f.dnnl_memory_desc_get_size, "dnnl_memory_desc_get_size");
  bind(f.dnnl_memory_create, "dnnl_memory_create");
  bind(f.dnnl_memory_set_data_handle, "dnnl_memory_set_data_handle");
  bind(f.dnnl_memory_destroy, "dnnl_memory_destroy");
  bind(f.dnnl_primitive_attr_create, "dnnl_primitive_attr_create");
  bind(f.dnnl_primitive_attr_destroy, "dnnl_primitive_attr_destroy");
  bind(f.dnnl_primitive_attr_set_scratchpad_mode, "dnnl_primitive_attr_set_scratchpad_mode");
  bind(f.dnnl_primitive_attr_set_fpmath_mode, "dnnl_primitive_attr_set_fpmath_mode");
  bind(f.dnnl_primitive_attr_set_post_ops, "dnnl_primitive_attr_set_post_ops");
  bind(f.dnnl_post_ops_create, "dnnl_post_ops_create");
  bind(f.dnnl_post_ops_destroy, "dnnl_post_ops_destroy");
  bind(f.dnnl_post_ops_append_binary, "dnnl_post_ops_append_binary");
  bind(f.dnnl_primitive_desc_query_md, "dnnl_primitive_desc_query_md");
  bind(f.dnnl_primitive_desc_destroy, "dnnl_primitive_desc_destroy");
  bind(f.dnnl_reorder_primitive_desc_create, "dnnl_reorder_primitive_desc_create");
  bind(f.dnnl_primitive_create, "dnnl_primitive_create");
  bind(f.dnnl_primitive_execute, "dnnl_primitive_execute");
  bind(f.dnnl_primitive_destroy, "dnnl_primitive_destroy");
  if (f.dnnl_version()->major == 2) {
    bind(f.v2.append_eltwise, "dnnl_post_ops_append_eltwise");
    bind(f.v2.memory_desc_init_by_strides, "dnnl_memory_desc_init_by_strides");
    bind(f.v2.memory_desc_init_by_tag, "dnnl_memory_desc_init_by_tag");
    bind(f.v2.dilated_convolution_forward_desc_init, "dnnl_dilated_convolution_forward_desc_init");
    bind(f.v2.dilated_deconvolution_forward_desc_init, "dnnl_dilated_deconvolution_forward_desc_init");
    bind(f.v2.dilated_convolution_backward_weights_desc_init,
         "dnnl_dilated_convolution_backward_weights_desc_init");
    bind(f.v2.primitive_desc_create, "dnnl_primitive_desc_create");
  } else {
    bind(f.v3.append_eltwise, "dnnl_post_ops_append_eltwise");
    bind(f.v3.memory_desc_create_with_strides, "dnnl_memory_desc_create_with_strides");
    bind(f.v3.memory_desc_create_with_tag, "dnnl_memory_desc_create_with_tag");
    bind(f.v3.memory_desc_destroy, "dnnl_memory_desc_destroy");
    bind(f.v3.convolution_forward_primitive_desc_create, "dnnl_convolution_forward_primitive_desc_create");
    bind(f.v3.deconvolution_forward_primitive_desc_create,
         "dnnl_deconvolution_forward_primitive_desc_create");
    bind(f.v3.convolution_backward_weights_primitive_desc_create,
         "dnnl_convolution_backward_weights_primitive_desc_create");
  }
}

// The pool of threads is shared with convtune's own loops, and kept through forks and signals with them
// (cpu/base/parallel.cpp): a oneDNN on any other could not be timed beside it.
Support on_our_openmp(const Library& library, const OnednnVersion& version) {
  decltype(&omp_set_num_threads) theirs = nullptr;
  const bool openmp = version.cpu_runtime == kOpenMp && library.bind_if_there(theirs, "omp_set_num_threads");
  if (openmp && theirs == &omp_set_num_threads) return Support::yes();
  return Support::no(
      fmt::format("oneDNN {} ({}) does not run on convtune's OpenMP threads; onednn-cpu-gomp of PyPI does",
                  version_text(version), library.path()));
}

Loaded load() {
  Loaded loaded;
  std::string tried;
  Library library;
  for (const char* soname : {"libdnnl.so.3", "libdnnl.so.2"}) {
    library = open(soname);
    if (library) break;
    loaded.unloadable |= library.is_unloadable();
    if (!tried.ends_with(library.why_not())) tried += (tried.empty() ? "" : "; ") + library.why_not();
  }
  if (!library) {
    loaded.found = Support::no(
        "oneDNN was not found; install Debian's libdnnl-dev or, in a virtual environment, onednn-cpu-gomp of "
        "PyPI: " +
        tried);
    return loaded;
  }
  loaded.path = library.path(), loaded.unloadable = false;
  try {
    OnednnFunctions& f = loaded.functions;
    library.bind(f.dnnl_version, "dnnl_version");
    const OnednnVersion& version = *f.dnnl_version();
    loaded.found = version.major == 2 || version.major == 3
                       ? on_our_openmp(library, version)
                       : Support::no(fmt::format("oneDNN 2 or 3 is needed, and {} is {}", loaded.path,
                                                 version_text(version)));
    if (loaded.found) bind(f, library);
  } catch (const Error& error) {
    loaded.found = Support::no(error.what());
  }
  return loaded;
}

const Loaded& loaded() {
  return once([] { return load(); });
}

std::string status_text(OnednnStatus status) {
  switch (status) {
    case kOutOfMemory:
      return "out of memory";
    case kInvalidArguments:
      return "invalid arguments";
    case kUnimplemented:
      return "unimplemented";
    case kRuntimeError:
      return "runtime error";
    default:
      return fmt::format("status {}", status);
  }
}

}  // namespace

const Support& onednn_found() {
  return loaded().found;
}

const OnednnFunctions& onednn_functions() {
  if (!loaded().found) throw Error(ErrorKind::unsupported, loaded().found.reason());
  return loaded().functions;
}

const OnednnVersion& onednn_numbers() {
  return *onednn_functions().dnnl_version();
}

std::string onednn_version() {
  return loaded().found ? version_text(onednn_numbers()) : loaded().found.reason();
}

bool onednn_is_unloadable() {
  return loaded().unloadable;
}

std::string describe_onednn() {
  if (!loaded().found) return loaded().found.reason();
  const std::string text = onednn_version() + "; " + loaded().path;
  if (onednn_numbers().major >= 3) return text;
  return text +
         "; it is old, and gains are proven against it: onednn-cpu-gomp of PyPI, in an active virtual "
         "environment, is version 3";
}

void check_onednn(OnednnStatus status, std::string_view doing) {
  if (status == 0) return;
  const bool refused = status == kInvalidArguments || status == kUnimplemented;
  throw Error(refused ? ErrorKind::unsupported : ErrorKind::internal,
              fmt::format("oneDNN {} failed to {}: {}", onednn_version(), doing, status_text(status)));
}

}  // namespace convtune::cpu
