// oneDNN's C API, versions 2 and 3, loaded while the program runs: the few functions and numbers of it that
// convtune uses, declared here so that no header of oneDNN's is needed to build. Names follow oneDNN's
// (dnnl_query_src_md is OnednnQuery::src). onednn_objects.h hides what differs between the versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "convtune/error.h"

namespace convtune::cpu {

std::string onednn_version();   // "3.2.0", or why there is none
std::string describe_onednn();  // its version and file, or why there is none
bool onednn_is_unloadable();    // whether its file is there and could not be loaded

struct OnednnVersion {  // the beginning of dnnl_version_t
  int major, minor, patch;
  const char* hash;
  unsigned cpu_runtime;
};

enum class OnednnQuery : int {  // dnnl_query_*_md
  src = 129,
  weights = 131,
  diff_weights = 132,
  dst = 133,
  diff_dst = 134,
  scratchpad = 136
};

enum class OnednnArgument : int {  // DNNL_ARG_*; what is converted goes from `src` to `dst`
  src = 1,
  dst = 17,
  weights = 33,
  bias = 41,
  scratchpad = 80,
  diff_dst = 145,
  diff_weights = 161,
  diff_bias = 169,
  added = -1,  // by the first post-op; each version has another number
};

using OnednnStatus = int;               // dnnl_status_t: 0 is success
using OnednnDescPointer = const void*;  // const_dnnl_memory_desc_t, in version 2 const dnnl_memory_desc_t*
using OnednnObject = void*;             // of any other type
struct OnednnExecArgument {             // dnnl_exec_arg_t
  int argument;
  OnednnObject memory;
};

struct OnednnFunctions {
  const OnednnVersion* (*dnnl_version)() = nullptr;
  OnednnStatus (*dnnl_engine_create)(OnednnObject*, int kind, std::size_t index) = nullptr;
  OnednnStatus (*dnnl_stream_create)(OnednnObject*, OnednnObject engine, unsigned flags) = nullptr;
  OnednnStatus (*dnnl_stream_wait)(OnednnObject) = nullptr;
  OnednnStatus (*dnnl_stream_destroy)(OnednnObject) = nullptr;
  int (*dnnl_memory_desc_equal)(OnednnDescPointer, OnednnDescPointer) = nullptr;
  std::size_t (*dnnl_memory_desc_get_size)(OnednnDescPointer) = nullptr;
  OnednnStatus (*dnnl_memory_create)(OnednnObject*, OnednnDescPointer, OnednnObject engine,
                                     void* handle) = nullptr;
  OnednnStatus (*dnnl_memory_set_data_handle)(OnednnObject, void* handle) = nullptr;
  OnednnStatus (*dnnl_memory_destroy)(OnednnObject) = nullptr;
  OnednnStatus (*dnnl_primitive_attr_create)(OnednnObject*) = nullptr;
  OnednnStatus (*dnnl_primitive_attr_destroy)(OnednnObject) = nullptr;
  OnednnStatus (*dnnl_primitive_attr_set_scratchpad_mode)(OnednnObject, int mode) = nullptr;
  OnednnStatus (*dnnl_primitive_attr_set_fpmath_mode)(OnednnObject, int mode) = nullptr;
  OnednnStatus (*dnnl_primitive_attr_set_post_ops)(OnednnObject, OnednnObject post_ops) = nullptr;
  OnednnStatus (*dnnl_post_ops_create)(OnednnObject*) = nullptr;
  OnednnStatus (*dnnl_post_ops_destroy)(OnednnObject) = nullptr;
  OnednnStatus (*dnnl_post_ops_append_binary)(OnednnObject, int algorithm, OnednnDescPointer) = nullptr;
  OnednnDescPointer (*dnnl_primitive_desc_query_md)(OnednnObject, int what, int index) = nullptr;
  OnednnStatus (*dnnl_primitive_desc_destroy)(OnednnObject) = nullptr;
  OnednnStatus (*dnnl_reorder_primitive_desc_create)(OnednnObject*, OnednnDescPointer from,
                                                     OnednnObject engine, OnednnDescPointer to,
                                                     OnednnObject to_engine,
                                                     OnednnObject attributes) = nullptr;
  OnednnStatus (*dnnl_primitive_create)(OnednnObject*, OnednnObject desc) = nullptr;
  OnednnStatus (*dnnl_primitive_execute)(OnednnObject, OnednnObject stream, int count,
                                         const OnednnExecArgument*) = nullptr;
  OnednnStatus (*dnnl_primitive_destroy)(OnednnObject) = nullptr;

  // Functions that take other arguments in one version, or are in one alone. In version 2 descriptors are
  // structs of the caller's.
  struct Version2 {
    OnednnStatus (*append_eltwise)(OnednnObject post_ops, float scale, int algorithm, float alpha,
                                   float beta) = nullptr;
    OnednnStatus (*memory_desc_init_by_strides)(void*, int axes, const std::int64_t* dims, int type,
                                                const std::int64_t* strides) = nullptr;
    OnednnStatus (*memory_desc_init_by_tag)(void*, int axes, const std::int64_t* dims, int type,
                                            int tag) = nullptr;
    OnednnStatus (*dilated_convolution_forward_desc_init)(void*, int kind, int algorithm, OnednnDescPointer x,
                                                          OnednnDescPointer w, OnednnDescPointer bias,
                                                          OnednnDescPointer y, const std::int64_t* strides,
                                                          const std::int64_t* dilations,
                                                          const std::int64_t* pad_before,
                                                          const std::int64_t* pad_after) = nullptr;
    decltype(dilated_convolution_forward_desc_init) dilated_deconvolution_forward_desc_init = nullptr;
    OnednnStatus (*dilated_convolution_backward_weights_desc_init)(
        void*, int algorithm, OnednnDescPointer x, OnednnDescPointer dw, OnednnDescPointer dbias,
        OnednnDescPointer dy, const std::int64_t* strides, const std::int64_t* dilations,
        const std::int64_t* pad_before, const std::int64_t* pad_after) = nullptr;
    OnednnStatus (*primitive_desc_create)(OnednnObject*, const void* operation, OnednnObject attributes,
                                          OnednnObject engine, OnednnObject hint) = nullptr;
  } v2;
  struct Version3 {
    OnednnStatus (*append_eltwise)(OnednnObject post_ops, int algorithm, float alpha, float beta) = nullptr;
    OnednnStatus (*memory_desc_create_with_strides)(OnednnObject*, int axes, const std::int64_t* dims,
                                                    int type, const std::int64_t* strides) = nullptr;
    OnednnStatus (*memory_desc_create_with_tag)(OnednnObject*, int axes, const std::int64_t* dims, int type,
                                                int tag) = nullptr;
    OnednnStatus (*memory_desc_destroy)(OnednnObject) = nullptr;
    OnednnStatus (*convolution_forward_primitive_desc_create)(
        OnednnObject*, OnednnObject engine, int kind, int algorithm, OnednnDescPointer x, OnednnDescPointer w,
        OnednnDescPointer bias, OnednnDescPointer y, const std::int64_t* strides,
        const std::int64_t* dilations, const std::int64_t* pad_before, const std::int64_t* pad_after,
        OnednnObject attributes) = nullptr;
    decltype(convolution_forward_primitive_desc_create) deconvolution_forward_primitive_desc_create = nullptr;
    OnednnStatus (*convolution_backward_weights_primitive_desc_create)(
        OnednnObject*, OnednnObject engine, int algorithm, OnednnDescPointer x, OnednnDescPointer dw,
        OnednnDescPointer dbias, OnednnDescPointer dy, const std::int64_t* strides,
        const std::int64_t* dilations, const std::int64_t* pad_before, const std::int64_t* pad_after,
        OnednnObject hint, OnednnObject attributes) = nullptr;
  } v3;
};

// Tells whether a oneDNN 2 or 3 on our OpenMP was found, looked for once in a process: the file that
// CONVTUNE_ONEDNN names; else version 3, then 2, each as base/library.h says. The reason says what was tried,
// and what to do.
const Support& onednn_found();
// The loaded functions. Throws Error{unsupported} with onednn_found()'s reason.
const OnednnFunctions& onednn_functions();
const OnednnVersion& onednn_numbers();  // throws as onednn_functions() does

// Throws where `status` is not success: Error{unsupported} where oneDNN has no implementation of what was
// asked, else Error{internal}. `doing` as in "oneDNN 3.2.0 failed to create a convolution".
void check_onednn(OnednnStatus status, std::string_view doing);

}  // namespace convtune::cpu
