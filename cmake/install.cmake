# What `cmake --install` puts where: the library and its headers, the case files, and the package that
# find_package(convtune) reads. The command installs itself in cli/.
include(CMakePackageConfigHelpers)

install(TARGETS convtune EXPORT convtuneTargets FILE_SET HEADERS)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/cases/ DESTINATION ${CMAKE_INSTALL_DATADIR}/convtune/cases)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/convtune)
install(EXPORT convtuneTargets NAMESPACE convtune:: DESTINATION ${package_folder})

# 1 when the library was built on oneDNN: then whoever links it needs oneDNN too.
set(convtune_needs_dnnl 0)
if(TARGET DNNL::dnnl)
  set(convtune_needs_dnnl 1)
endif()
configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/convtuneConfig.cmake.in ${PROJECT_BINARY_DIR}/convtuneConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/convtuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/convtuneConfig.cmake ${PROJECT_BINARY_DIR}/convtuneConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/Finddnnl.cmake DESTINATION ${package_folder})
