// Programmatic dependent launch: a kernel that begins before the one in front of it on its stream has ended.
// The launch says that it may (cuda/launch/kernel.h); the code must then wait before it touches memory.
#pragma once

namespace convtune::ptx {

// Blocks of this kernel may have begun while earlier kernels of the stream still run: this returns when those
// have ended and what they wrote can be read. Every thread calls it before its first access to global memory,
// writes too, since an earlier kernel may still read there. Pairs alone read packed weights and their flag
// before it: pack() ends with a step of memory alone that no launch overlaps, so that what wrote them has
// ended before the kernel in front began. A block that ends without a call would let the next kernel overtake
// an earlier one. Only then it lets the next kernel's blocks begin, once all blocks of this one have come so
// far: they take what room is left, and wait here. So of three kernels no two but neighbours are ever under
// way together. Before compute capability 9.0, where kernels do not overlap, it does nothing, as in a launch
// that does not allow it.
//
// Reads through a `const __restrict__` pointer count as reads of constants, which a compiler may move to
// before a wait that they do not depend on. It did with the flag of the packed weights, which every kernel
// reads first of all and whatever else happens: so kernels give that pointer. Giving all of them was tried:
// no other read had moved, and some kernels grew by 2 to 50 %.
template <class... Pointers>
__device__ inline void wait_for_earlier_grids(Pointers&... pointers) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  (..., [](auto& pointer) { asm volatile("" : "+l"(pointer)::"memory"); }(pointers));
#endif
}

}  // namespace convtune::ptx
