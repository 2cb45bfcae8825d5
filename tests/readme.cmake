# The C++ program of README.md, word for word: built with the tests and run as one.
set(readme ${PROJECT_SOURCE_DIR}/README.md)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${readme})
file(READ ${readme} text)
if(NOT text MATCHES "\n```cpp\n(.*)")
  message(FATAL_ERROR "README.md has no C++ program in a ```cpp block")
endif()
string(FIND "${CMAKE_MATCH_1}" "\n```" end)
string(SUBSTRING "${CMAKE_MATCH_1}" 0 ${end} program)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/readme_program.cpp "${program}\n")

add_executable(readme_program ${CMAKE_CURRENT_BINARY_DIR}/readme_program.cpp)
target_link_libraries(readme_program PRIVATE convtune::convtune)
# Two tests, because a test that looks at the output does not look at the exit code.
foreach(test readme_program readme_program_output)
  add_test(NAME ${test} COMMAND readme_program)
  set_tests_properties(${test} PROPERTIES ENVIRONMENT CONVTUNE_DATA_DIR=${CMAKE_CURRENT_BINARY_DIR}/no_records)
endforeach()
set_tests_properties(readme_program_output PROPERTIES PASS_REGULAR_EXPRESSION "y.0. = 122.5\n")
