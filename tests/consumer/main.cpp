// A stranger's program: one pixel, one 1x1 filter, through the public headers alone.
#include <convtune/convolution.h>

#include <cstdio>

int main() {
  const auto convolution = convtune::plan(convtune::parse_problem("mb1ic1ih1oc1kh1"));
  const float x = 3, w = 5, bias = 7;
  float y = 0;
  convolution.run({.x = &x, .y = &y}, &w, &bias);
  std::printf("%g by %s\n", y, convolution.plan().algorithm.c_str());
  return y == 22 ? 0 : 1;
}
