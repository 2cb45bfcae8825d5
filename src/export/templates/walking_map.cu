

// Images with channels last, over which copies walk between two corners, columns first, by steps.
static convtune::ptx::TensorMap walking_map(const void* data, CUtensorMapDataType type,
                                            const std::vector<cuuint64_t>& extents,
                                            const std::vector<cuuint64_t>& strides,
                                            const std::vector<cuuint32_t>& box, const std::vector<int>& first_corner,
                                            const std::vector<int>& last_corner, std::vector<cuuint32_t> steps,
                                            CUtensorMapSwizzle swizzle) {
  static const auto encode = driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  steps.insert(steps.begin(), 1);
  steps.resize(extents.size(), 1);
  convtune::ptx::TensorMap map;
  const CUresult result =
      encode(reinterpret_cast<CUtensorMap*>(&map), type, extents.size(), const_cast<void*>(data), extents.data(),
             strides.data(), first_corner.data(), last_corner.data(), box[0], box[1], steps.data(),
             CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  TORCH_CHECK(result == CUDA_SUCCESS, "cuTensorMapEncodeIm2col: error ", static_cast<int>(result));
  return map;
}