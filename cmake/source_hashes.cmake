# convtune_source_hashes(<name> <src folder>): makes one C++ source that defines convtune::cpu::source_hash_of()
# (src/cpu/launch/source_hashes.h): for each folder of src/cpu/algorithms a hash of the code that an algorithm
# runs, its own files and those of the folders below src/cpu/tile that they include. Comments and spaces have no
# part in it, nor have *_candidates.*, which choose among configs and change none. Sets the variable <name> to the
# source's path, to be added to a target of the same folder. The second half of this file runs at build time.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(convtune_source_hashes name src)
    set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    set(script ${CMAKE_CURRENT_FUNCTION_LIST_FILE})
    file(GLOB_RECURSE files CONFIGURE_DEPENDS ${src}/cpu/algorithms/* ${src}/cpu/tile/*)
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -P ${script} ${src} ${output}
      DEPENDS ${script} ${files}
      COMMENT "Hashing the CPU's algorithms"
      VERBATIM)
    set(${name} ${output} PARENT_SCOPE)
  endfunction()
  return()
endif()

# cmake -P source_hashes.cmake <src folder> <output>
set(src ${CMAKE_ARGV3})
set(output ${CMAKE_ARGV4})

# Appends the code of the files that match to the variable `code`.
macro(append_code)
  file(GLOB files ${ARGN})
  list(FILTER files EXCLUDE REGEX "_candidates\\.")
  foreach(file IN LISTS files)
    file(READ ${file} text)
    string(REGEX REPLACE "//[^\n]*" "" text "${text}")
    string(REGEX REPLACE "[ \t\n]+" " " text "${text}")
    cmake_path(GET file FILENAME file_name)
    string(APPEND code "${file_name} ${text}\n")
  endforeach()
endmacro()

set(entries)
file(GLOB folders ${src}/cpu/algorithms/*/*.cpp)
list(TRANSFORM folders REPLACE "/[^/]*$" "")
list(REMOVE_DUPLICATES folders)
foreach(folder IN LISTS folders)
  set(code)
  append_code(${folder}/*.h ${folder}/*.cpp)
  string(REGEX MATCHALL "\"cpu/tile/([a-z_]+/)*" tiles "${code}")
  list(REMOVE_DUPLICATES tiles)
  list(SORT tiles)
  foreach(tile IN LISTS tiles)
    string(SUBSTRING ${tile} 1 -1 tile)
    append_code(${src}/${tile}*.h ${src}/${tile}*.cpp)
  endforeach()
  string(SHA256 hash "${code}")
  string(SUBSTRING ${hash} 0 16 hash)
  cmake_path(GET folder FILENAME algorithm)
  string(APPEND entries "  if (algorithm == \"${algorithm}\") return \"${hash}\";\n")
endforeach()
file(WRITE ${output} "// Made by cmake/source_hashes.cmake.
#include \"cpu/launch/source_hashes.h\"

namespace convtune::cpu {

std::string_view source_hash_of(std::string_view algorithm) {
${entries}  return {};
}

}  // namespace convtune::cpu
")
