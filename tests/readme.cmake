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
add_test(NAME readme_program COMMAND readme_program)
