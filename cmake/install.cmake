# Lists the files of `cmake --install` and their places: the library and its headers, the case files, the licences,
# and the files that find_package(convtune) and pkg-config read. The command installs itself in cli/.
include(CMakePackageConfigHelpers)

# A wheel (pyproject.toml) holds the shared libraries and the command inside of the Python package, and none of the
# links that a file's version goes by; GNU's OpenMP as well, which not every machine has, with its licence. It goes by
# its own name there, so that a process has one of them: oneDNN's is then ours (docs/decisions/0003).
if(SKBUILD)
  foreach(library IN ITEMS convtune_c convtune_torch)
    set_property(TARGET ${library} PROPERTY VERSION)
    set_property(TARGET ${library} PROPERTY SOVERSION)
    set_property(TARGET ${library} PROPERTY INSTALL_RPATH $ORIGIN)
    install(TARGETS ${library} LIBRARY DESTINATION convtune/lib COMPONENT python)
  endforeach()
  set_property(TARGET convtune_cli PROPERTY INSTALL_RPATH $ORIGIN/../lib)
  install(TARGETS convtune_cli RUNTIME DESTINATION convtune/bin COMPONENT python)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.so.1 OUTPUT_VARIABLE gomp OUTPUT_STRIP_TRAILING_WHITESPACE)
  file(REAL_PATH "${gomp}" gomp)
  if(EXISTS "${gomp}")
    install(PROGRAMS ${gomp} DESTINATION convtune/lib RENAME libgomp.so.1 COMPONENT python)
    install(FILES /usr/share/doc/libgomp1/copyright DESTINATION convtune/lib RENAME libgomp.copyright COMPONENT python OPTIONAL)
    install(FILES /usr/share/common-licenses/GPL-3 DESTINATION convtune/lib RENAME libgomp.GPL-3 COMPONENT python OPTIONAL)
  endif()
  return()
endif()

install(TARGETS convtune convtune_refine EXPORT convtuneTargets FILE_SET HEADERS)
if(TARGET convtune_c)
  install(TARGETS convtune_c convtune_torch EXPORT convtune_cTargets FILE_SET HEADERS)
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

# For builds without CMake. Folders are relative to the file's own, as an installed copy may move.
set(pkgconfig_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
cmake_path(ABSOLUTE_PATH pkgconfig_folder BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE from)
foreach(folder IN ITEMS LIB INCLUDE)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_${folder}DIR BASE_DIRECTORY ${from} OUTPUT_VARIABLE pkgconfig_${folder})
endforeach()
list(TRANSFORM OpenMP_CXX_LIB_NAMES PREPEND -l OUTPUT_VARIABLE openmp_libraries)
list(JOIN openmp_libraries " " openmp_libraries)
configure_file(${PROJECT_SOURCE_DIR}/cmake/convtune.pc.in ${PROJECT_BINARY_DIR}/convtune.pc @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/convtune_refine.pc.in ${PROJECT_BINARY_DIR}/convtune_refine.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/convtune.pc ${PROJECT_BINARY_DIR}/convtune_refine.pc DESTINATION ${pkgconfig_folder})
if(TARGET convtune_c)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/convtune_c.pc.in ${PROJECT_BINARY_DIR}/convtune_c.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/convtune_c.pc DESTINATION ${pkgconfig_folder})
endif()
