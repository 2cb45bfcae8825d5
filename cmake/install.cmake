# What `cmake --install` puts where: the library and its headers, the case files, the licences, and the
# package that find_package(convtune) reads. The command installs itself in cli/.
include(CMakePackageConfigHelpers)

# A wheel (pyproject.toml) holds the shared library and the command inside of the Python package, and none of the
# links that a file's version goes by.
if(SKBUILD)
  set_property(TARGET convtune_c PROPERTY VERSION)
  set_property(TARGET convtune_c PROPERTY SOVERSION)
  install(TARGETS convtune_c LIBRARY DESTINATION convtune/lib COMPONENT python)
  if(TARGET convtune_torch)
    install(TARGETS convtune_torch LIBRARY DESTINATION convtune/lib COMPONENT python)
  endif()
  install(TARGETS convtune_cli RUNTIME DESTINATION convtune/bin COMPONENT python)
  return()
endif()

install(TARGETS convtune EXPORT convtuneTargets FILE_SET HEADERS)
if(TARGET convtune_c)
  install(TARGETS convtune_c EXPORT convtune_cTargets FILE_SET HEADERS)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/cases/ DESTINATION ${CMAKE_INSTALL_DATADIR}/convtune/cases)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/THIRD_PARTY_NOTICES
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/convtune)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/convtune)
install(EXPORT convtuneTargets NAMESPACE convtune:: DESTINATION ${package_folder})
if(TARGET convtune_c)
  install(EXPORT convtune_cTargets NAMESPACE convtune:: DESTINATION ${package_folder})
endif()

configure_package_config_file(
  ${PROJECT_SOURCE_DIR}/cmake/convtuneConfig.cmake.in ${PROJECT_BINARY_DIR}/convtuneConfig.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/convtuneConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/convtuneConfig.cmake ${PROJECT_BINARY_DIR}/convtuneConfigVersion.cmake
        DESTINATION ${package_folder})
