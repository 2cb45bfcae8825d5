# oneDNN by its header and library: DNNL::dnnl, dnnl_VERSION. The package file that comes with Debian's
# build insists on OpenCL's headers, which convtune never touches and Debian does not install beside it.
find_path(dnnl_INCLUDE_DIR oneapi/dnnl/dnnl_version.h)
find_library(dnnl_LIBRARY dnnl)
mark_as_advanced(dnnl_INCLUDE_DIR dnnl_LIBRARY)

if(dnnl_INCLUDE_DIR)
  set(header ${dnnl_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${header} line REGEX "#define DNNL_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+" version_${part} "${line}")
  endforeach()
  set(dnnl_VERSION ${version_MAJOR}.${version_MINOR}.${version_PATCH})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(dnnl REQUIRED_VARS dnnl_LIBRARY dnnl_INCLUDE_DIR VERSION_VAR dnnl_VERSION)
if(dnnl_FOUND AND NOT TARGET DNNL::dnnl)
  set(scope)
  if(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
    set(scope GLOBAL)
  endif()
  add_library(DNNL::dnnl UNKNOWN IMPORTED ${scope})
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${dnnl_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${dnnl_INCLUDE_DIR})
endif()
