# Packages that convtune is built with, and where to get them. Errors name what is missing, its Debian package and the ways out.
set(convtune_ARCHIVES "" CACHE PATH "A folder with the archives of headers that are not installed, for builds without network")

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
        "packages or conda's, or say where it is: -DCMAKE_PREFIX_PATH=DIR (pip: --config-settings=cmake.define.CMAKE_PREFIX_PATH=DIR).")
  endif()
endmacro()

# convtune_need_headers(NAME DEBIAN PACKAGE INCLUDE FOLDER URL URL SHA256 HASH): the same for a library of which headers are
# enough: where it is not installed, NAME::NAME is the headers in FOLDER of a pinned archive (docs/decisions/0126).
function(convtune_need_headers name)
  find_package(${name} QUIET)
  if(${name}_FOUND)
    set(${name}_VERSION ${${name}_VERSION} PARENT_SCOPE)  # CMakeLists.txt asks whether {fmt} is older than 10
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 need "" "DEBIAN;INCLUDE;URL;SHA256" "")
  set(folder ${PROJECT_BINARY_DIR}/headers)
  set(include ${folder}/${need_INCLUDE})
  if(NOT EXISTS ${include})
    cmake_path(GET need_URL FILENAME archive)
    set(archive ${name}-${archive})
    set(file ${folder}/${archive})
    set(status 0)
    if(convtune_ARCHIVES)
      set(file ${convtune_ARCHIVES}/${archive})
    else()
      message(STATUS "${name} is not installed: taking its headers from ${need_URL}")
      file(DOWNLOAD ${need_URL} ${file} STATUS status INACTIVITY_TIMEOUT 60)
    endif()
    set(wrong)
    if(NOT EXISTS ${file})
      set(wrong "there is no ${file}")
    elseif(NOT status MATCHES "^0")
      set(wrong "${need_URL}: ${status}")
    else()
      file(SHA256 ${file} hash)
      if(NOT hash STREQUAL need_SHA256)
        set(wrong "${file} has the SHA-256 ${hash}, not ${need_SHA256}")
      endif()
    endif()
    if(wrong)
      message(
        FATAL_ERROR
          "convtune needs ${name}, which is not installed, nor can its headers be had: ${wrong}. On Debian and Ubuntu, "
          "scripts/setup installs all that convtune is built with; ${name} is in the package ${need_DEBIAN}. Elsewhere, install "
          "it with the system's packages or conda's, or say where it is: -DCMAKE_PREFIX_PATH=DIR. Without network, put "
          "${need_URL} into a folder under the name ${archive}: -Dconvtune_ARCHIVES=DIR (pip: --config-settings=cmake.define.convtune_ARCHIVES=DIR).")
    endif()
    file(ARCHIVE_EXTRACT INPUT ${file} DESTINATION ${folder} PATTERNS ${need_INCLUDE}/*)
  endif()
  add_library(${name}::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(${name}::${name} INTERFACE ${include})
endfunction()
