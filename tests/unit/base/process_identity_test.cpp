// Which processes live: this one, one that waits, one that is dead, one that nobody has waited for yet.
#include "base/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace convtune::process_identity_test {
namespace {

TEST(ProcessIdentity, TellsTheLivingFromTheDead) {
  EXPECT_EQ(life_of(process_identity()), Life::living);
  int says[2];
  ASSERT_EQ(::pipe(says), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string own = process_identity();
    if (::write(says[1], own.data(), own.size()) == static_cast<ssize_t>(own.size()))
      while (true) ::pause();
    ::_exit(1);
  }
  char text[256];
  const ssize_t length = ::read(says[0], text, sizeof text);
  ASSERT_GT(length, 0);
  const std::string identity(text, static_cast<std::size_t>(length));
  EXPECT_NE(identity, process_identity());
  EXPECT_EQ(life_of(identity), Life::living);
  ::kill(child, SIGKILL);
  siginfo_t died{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &died, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(life_of(identity), Life::dead) << "a zombie does nothing any more";
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(life_of(identity), Life::dead);
}

TEST(ProcessIdentity, AnIdThatIsUsedAgainIsAnotherProcess) {
  EXPECT_EQ(life_of(process_identity() + "0"), Life::dead);  // began at another time
}

TEST(ProcessIdentity, OfProcessesElsewhereNothingIsKnown) {
  std::string elsewhere = process_identity();
  elsewhere[0] = elsewhere[0] == '0' ? '1' : '0';  // a process of another boot
  EXPECT_EQ(life_of(elsewhere), Life::unknown);
  for (const char* nonsense : {"", ".", "..", "...", "a.b.c.d", "1", "1.2"})
    EXPECT_EQ(life_of(nonsense), Life::unknown) << nonsense;
}

}  // namespace
}  // namespace convtune::process_identity_test
