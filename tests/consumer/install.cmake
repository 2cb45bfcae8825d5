# cmake -DBUILD=... -DPREFIX=... -P install.cmake: installs the build afresh and looks for what belongs there.
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} COMMAND_ERROR_IS_FATAL ANY)
foreach(file include/convtune/convolution.h share/convtune/cases/stem.txt share/doc/convtune/LICENSE
             share/doc/convtune/THIRD_PARTY_NOTICES include/convtune/language.h)
  if(NOT EXISTS ${PREFIX}/${file})
    message(FATAL_ERROR "${file} was not installed")
  endif()
endforeach()
