// A property of a processor's stores that nothing but a measurement tells, taken once a process.
#pragma once

namespace convtune::cpu {

// True where stores past the caches to one place of several pages wait for each other (cpu/tile/stagger.h):
// lines of six planes a multiple of a page apart, stored between products, beside planes that lie otherwise.
// Takes about 2 ms, the first time that it is asked.
bool meeting_stores_wait();

}  // namespace convtune::cpu
