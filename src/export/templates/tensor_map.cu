

template <class Function>
static Function driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &result));
#else
  C10_CUDA_CHECK(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &result));
#endif
  TORCH_CHECK(result == cudaDriverEntryPointSuccess, "the driver has no ", name);
  return reinterpret_cast<Function>(function);
}

// A tensor for the copy engine: extents, the innermost first; strides of the others in bytes; the box that one
// copy takes, and of how many elements of each extent it takes one.
static convtune::ptx::TensorMap tensor_map(const void* data, CUtensorMapDataType type,
                                           const std::vector<cuuint64_t>& extents,
                                           const std::vector<cuuint64_t>& strides,
                                           const std::vector<cuuint32_t>& box, CUtensorMapSwizzle swizzle,
                                           std::vector<cuuint32_t> steps = {}) {
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  steps.resize(extents.size(), 1);
  convtune::ptx::TensorMap map;
  const CUresult result =
      encode(reinterpret_cast<CUtensorMap*>(&map), type, extents.size(), const_cast<void*>(data), extents.data(),
             strides.data(), box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", static_cast<int>(result));
  return map;
}