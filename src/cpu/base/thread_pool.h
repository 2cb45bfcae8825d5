// Threads of convtune's own, which all loops of a process share. Who starts a loop works on it itself, and
// waits for no thread that has not begun (docs/decisions/0108).
#pragma once

namespace convtune::cpu {

// Calls member(context, 0) on this thread and, on workers that are free meanwhile, member(context, i) with
// 0 < i < members. Returns when its own call and those that have begun are done: a member with i = 0 leaves
// no work behind, and others may find none. Two workers may have the same i, one after the other or at a
// time. member must not throw.
void work_together(int members, void (*member)(void* context, int index), void* context);

// Starts threads for as many of the members as the system allows, and returns their number with the caller.
int members_of(int wanted);

// Tells if this thread is a worker that ought to leave its loop before it takes more of the work: it has
// worked for so long that the system may soon give its processor to another process, and a loop would wait
// for what it holds then. It comes back where there is still room.
bool ought_to_leave();

}  // namespace convtune::cpu
