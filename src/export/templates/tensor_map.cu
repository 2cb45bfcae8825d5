
// A tensor of floats for the copy engine: extents, the innermost first; strides of the others in bytes; the
// box that one copy takes.
static convtune::ptx::TensorMap tensor_map(const float* data, const std::vector<cuuint64_t>& extents,
                                           const std::vector<cuuint64_t>& strides,
                                           const std::vector<cuuint32_t>& box,
                                           CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                    cudaEnableDefault, &result));
#else
    C10_CUDA_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result));
#endif
    TORCH_CHECK(result == cudaDriverEntryPointSuccess, "the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  const std::vector<cuuint32_t> every(extents.size(), 1);
  convtune::ptx::TensorMap map;
  const CUresult result =
      encode(reinterpret_cast<CUtensorMap*>(&map), CU_TENSOR_MAP_DATA_TYPE_FLOAT32, extents.size(),
             const_cast<float*>(data), extents.data(), strides.data(), box.data(), every.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeTiled: error ", static_cast<int>(result));
  return map;
}
