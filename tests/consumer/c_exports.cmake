# cmake -DNM=... -DLIBRARY=... -DHEADER=... -P c_exports.cmake: the shared library exports what the header declares,
# all of it and nothing else.
execute_process(COMMAND ${NM} -D --defined-only --format=posix ${LIBRARY} OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n]+" exported "${listed}")
list(TRANSFORM exported REPLACE " .*" "")
list(SORT exported)

file(READ ${HEADER} header)
string(REGEX MATCHALL "CONVTUNE_API [^;(]*convtune_[a-z0-9_]+\\(" declared "${header}")
list(TRANSFORM declared REPLACE ".*(convtune_[a-z0-9_]+)\\($" "\\1")
list(SORT declared)

list(LENGTH declared count)
if(count LESS 15 OR NOT exported STREQUAL declared)
  message(FATAL_ERROR "exported: ${exported}\ndeclared: ${declared}")
endif()
message("${count} functions")
