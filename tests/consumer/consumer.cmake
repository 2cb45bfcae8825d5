# Proves the ways to use convtune from another project: find_package on an installed copy of this build, by a
# project in C++ and by one in C, and add_subdirectory (which takes the library as this build compiled it: to compile it
# again took as long as all other tests).
set(prefix ${CMAKE_CURRENT_BINARY_DIR}/consumer/prefix)
add_test(NAME consumer_install
         COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -DPREFIX=${prefix}
                 -P ${CMAKE_CURRENT_LIST_DIR}/install.cmake)
set_tests_properties(consumer_install PROPERTIES FIXTURES_SETUP consumer_prefix)

function(convtune_consumer_test name)
  set(build ${CMAKE_CURRENT_BINARY_DIR}/consumer/${name})
  add_test(
    NAME consumer_${name}
    COMMAND
      ${CMAKE_CTEST_COMMAND} --build-and-test ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${name} ${build}
      --build-generator ${CMAKE_GENERATOR}
      --build-options -DCMAKE_BUILD_TYPE=Debug ${ARGN}
      --test-command ${build}/consumer)
  set_tests_properties(consumer_${name} PROPERTIES TIMEOUT 600 RUN_SERIAL ON
                                                   ENVIRONMENT CONVTUNE_DATA_DIR=${build}/no_records)
endfunction()

# The installed library needs the sanitizer, if any, that it was built with.
set(compiler -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER})
convtune_consumer_test(find_package ${compiler} -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS})
set_tests_properties(consumer_find_package PROPERTIES FIXTURES_REQUIRED consumer_prefix)
convtune_consumer_test(add_subdirectory ${compiler} -DCMAKE_CXX_FLAGS=${CMAKE_CXX_FLAGS} -DBUILT=$<TARGET_FILE:convtune>)
if(UNIX AND TARGET convtune_c)
  find_program(pkg_config NAMES pkg-config pkgconf NO_CACHE)
  add_test(NAME consumer_without_cmake
           COMMAND ${Python3_EXECUTABLE} -B ${CMAKE_CURRENT_LIST_DIR}/without_cmake_test.py ${PROJECT_SOURCE_DIR} ${prefix}
                   "${pkg_config}" "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_FLAGS}" $<TARGET_FILE_NAME:convtune_c>)
  set_tests_properties(consumer_without_cmake PROPERTIES FIXTURES_REQUIRED consumer_prefix SKIP_RETURN_CODE 77)
endif()
if(TARGET convtune_c)
  convtune_consumer_test(c -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_C_FLAGS=${CMAKE_CXX_FLAGS})
  set_tests_properties(consumer_c PROPERTIES FIXTURES_REQUIRED consumer_prefix)
  add_test(NAME c_exports
           COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DLIBRARY=$<TARGET_FILE:convtune_c>
                   -DHEADER=${PROJECT_SOURCE_DIR}/include/convtune/c.h -P ${CMAKE_CURRENT_LIST_DIR}/c_exports.cmake)
endif()
