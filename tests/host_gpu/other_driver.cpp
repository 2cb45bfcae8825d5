// libcuda.so.1 where a process on stand-ins must not find it: as a real driver is found on a machine with a
// GPU.
#include <cstdio>
#include <cstdlib>

extern "C" int cuGetProcAddress_v2(const char*, void**, int, unsigned long long, int*) {
  std::fputs("another driver than the stand-in was loaded\n", stderr);
  std::abort();
}
