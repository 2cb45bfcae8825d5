// Included by the headers that include no other of convtune's, so that an older C++ is told before it meets
// newer syntax.
#pragma once

#if defined(_MSVC_LANG) ? _MSVC_LANG <= 201703L : __cplusplus <= 201703L
#error \
    "convtune's headers need C++20: compile with -std=c++20 (CMake does so for whoever links convtune::convtune)"
#endif
