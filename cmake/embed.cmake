# convtune_embed(<name> [BELOW <folder>] <file>...): makes one C++ source that holds the files byte for byte and
# defines std::span<const EmbeddedFile> convtune::<name>() over them (declared in src/base/embedded.h or
# a header like it). A file goes by its name, or by its path below the folder. Sets the variable <name> to the source's path, to be added to a target of the
# same folder. Made anew when a file changes. The second half of this file runs at build time.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(convtune_embed name)
    if(NOT ARGN)
      message(FATAL_ERROR "convtune_embed(${name}): no files to embed")
    endif()
    set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    set(script ${CMAKE_CURRENT_FUNCTION_LIST_FILE})
    cmake_parse_arguments(PARSE_ARGV 1 embed "" BELOW "")
    set(files)
    foreach(file IN LISTS embed_UNPARSED_ARGUMENTS)
      cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
      list(APPEND files ${file})
    endforeach()
    add_custom_command(
      OUTPUT ${output}
      COMMAND ${CMAKE_COMMAND} -P ${script} ${name} ${output} "${embed_BELOW}" ${files}
      DEPENDS ${script} ${files}
      COMMENT "Embedding ${name}"
      VERBATIM)
    set(${name} ${output} PARENT_SCOPE)
  endfunction()
  return()
endif()

# cmake -P embed.cmake <name> <output> <folder, or nothing> <file>...
set(name ${CMAKE_ARGV3})
set(output ${CMAKE_ARGV4})
set(below "${CMAKE_ARGV5}")
set(entries)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(index RANGE 6 ${last})
  set(file ${CMAKE_ARGV${index}})
  if(below)
    cmake_path(RELATIVE_PATH file BASE_DIRECTORY ${below} OUTPUT_VARIABLE file_name)
  else()
    cmake_path(GET file FILENAME file_name)
  endif()
  file(SIZE ${file} size)
  # Every byte as \xNN in short adjacent literals: no content can end a literal or start a trigraph.
  file(READ ${file} hex HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" escaped "${hex}")
  string(REPEAT "." 128 line)
  string(REGEX REPLACE "(${line})" "\\1\"\n     \"" escaped "${escaped}")
  string(APPEND entries "    {\"${file_name}\",\n     {\"${escaped}\", ${size}}},\n")
endforeach()
file(WRITE ${output} "// Made by cmake/embed.cmake.
#include \"base/embedded.h\"

namespace convtune {

std::span<const EmbeddedFile> ${name}() {
  static constexpr EmbeddedFile kFiles[] = {
${entries}  };
  return kFiles;
}

}  // namespace convtune
")
