// Stands in for NVIDIA's management library in tests: one GPU at 0000:1b:00.0 whose clock
// the test sets. Built twice; OLD has the function by the name that it had before 12.2.
#include <string_view>

extern "C" {

int stand_in_init = 0, stand_in_fails = 0;  // the status that init returns; whether the rest fails
unsigned long long stand_in_reasons = 0;
unsigned stand_in_mhz = 1980;
static int gpu;

int nvmlInit_v2() {
  return stand_in_init;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** handle) {
  if (std::string_view(id) != "0000:1b:00.0") return 6;
  *handle = &gpu;
  return 0;
}

#ifdef OLD
int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* reasons) {
#else
int nvmlDeviceGetCurrentClocksEventReasons(void* handle, unsigned long long* reasons) {
#endif
  if (handle != &gpu || stand_in_fails != 0) return 3;
  *reasons = stand_in_reasons;
  return 0;
}

int nvmlDeviceGetClockInfo(void* handle, int kind, unsigned* mhz) {
  if (handle != &gpu || kind != 1 || stand_in_mhz == 0) return 3;
  *mhz = stand_in_mhz;
  return 0;
}

}  // extern "C"
