# convtune_need(NAME DEBIAN PACKAGE [COMPONENTS ...]): find_package() that says how to get what is not there.
macro(convtune_need name)
  cmake_parse_arguments(need "" "DEBIAN" "COMPONENTS" ${ARGN})
  if(need_COMPONENTS)
    find_package(${name} QUIET COMPONENTS ${need_COMPONENTS})
  else()
    find_package(${name} QUIET)
  endif()
  if(NOT ${name}_FOUND)
    message(
      FATAL_ERROR
        "convtune needs ${name}, which CMake does not find. On Debian and Ubuntu, scripts/setup (or `make setup`) installs all "
        "that convtune is built with; ${name} is in the package ${need_DEBIAN}. Elsewhere, install ${name} with the system's "
        "packages or conda's, or say where it is: -DCMAKE_PREFIX_PATH=DIR (pip: -C cmake.define.CMAKE_PREFIX_PATH=DIR).")
  endif()
endmacro()
