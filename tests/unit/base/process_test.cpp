// Child processes: what they write, how they end, and that nothing of them is left behind.
#include "base/process.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>

#include "base/child.h"
#include "convtune/error.h"

namespace convtune::process_test {
namespace {

using Got = ChildProcess::Got;

void expect_in(const std::string& text, const char* needle) {
  EXPECT_NE(text.find(needle), text.npos) << "no '" << needle << "' in: " << text;
}

void expect_no_child() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// Whoever adopts it may be slow to notice.
void expect_gone(pid_t process) {
  for (int i = 0; i < 100 && ::kill(process, 0) == 0; ++i) ::usleep(20'000);
  std::ifstream status(fmt::format("/proc/{}/stat", process));
  std::string text;
  if (std::getline(status, text)) expect_in(text, ") Z ");
}

void receive_all(Child& child) {
  Child* const only[] = {&child};
  while (!child.closed(0)) Child::receive(only, 1000);
}

TEST(Child, SaysAllAndEnds) {
  Child child(2, [](std::span<const int> pipes) {
    write_all(pipes[0], std::string(3 << 20, 'x'));  // more than a pipe holds, and than is taken at once
    write_all(pipes[1], "beside");
  });
  receive_all(child);
  EXPECT_EQ(child.received(0), std::string(3 << 20, 'x'));
  child.end();
  EXPECT_TRUE(child.succeeded());
  EXPECT_EQ(child.received(1), "beside");
  expect_no_child();
}

TEST(Child, ACrashTakesNobodyElse) {
  Child child(1, [](std::span<const int>) { ::raise(SIGKILL); });
  receive_all(child);
  child.end();
  EXPECT_FALSE(child.succeeded());
  EXPECT_EQ(child.ending(), "was ended by signal 9");
}

TEST(Child, OfSeveralWhoeverIsReadyIsHeard) {
  Child slow(1, [](std::span<const int>) { ::pause(); });
  Child quick(1, [](std::span<const int> pipes) { write_all(pipes[0], "here"); });
  Child* const both[] = {&slow, &quick};
  while (!quick.closed(0)) Child::receive(both, -1);
  EXPECT_EQ(quick.received(0), "here");
  EXPECT_FALSE(slow.closed(0));
  EXPECT_FALSE(slow.has_ended());
  EXPECT_EQ(slow.ending(), "is still running");
}

TEST(Child, WhatWritesWithoutAnEndIsEnded) {
  Child child(1, [](std::span<const int> pipes) {
    while (write_all(pipes[0], std::string(1 << 20, 'x'))) {
    }
  });
  receive_all(child);
  EXPECT_FALSE(child.running());
  EXPECT_LT(child.received(0).size(), std::size_t{80} << 20);
}

TEST(Child, ItsGroupEndsWithIt) {
  pid_t grandchild = 0;
  {
    Child child(1, [](std::span<const int> pipes) {
      const pid_t process = ::fork();
      if (process > 0) write_all(pipes[0], fmt::format("{}\n", process));
      ::pause();
    });
    Child* const only[] = {&child};
    while (child.received(0).find('\n') == std::string::npos) Child::receive(only, 1000);
    grandchild = std::stoi(child.received(0));
    EXPECT_NE(::getpgid(grandchild), ::getpgid(0));  // so Ctrl-C reaches neither
  }
  expect_gone(grandchild);
  expect_no_child();
}

ChildProcess shell(const std::string& script, const std::vector<std::string>& variables = {}) {
  return ChildProcess({"/bin/sh", "-c", script}, variables);
}

TEST(Process, LinesGoBothWays) {
  ChildProcess child = shell(
      "while read line; do echo \"got $line $WORD\"; done; echo last >&2; printf end; exit 3", {"WORD=word"});
  std::string line;
  for (const char* text : {"one", "two"}) {
    child.write_line(text);
    ASSERT_EQ(child.read_line(line, 60), Got::line);
    EXPECT_EQ(line, fmt::format("got {} word", text));
  }
  EXPECT_EQ(child.read_line(line, 0.05), Got::late);
  EXPECT_EQ(child.read_line(line, 60, [] { return true; }), Got::cancelled);
  EXPECT_EQ(child.ending(), "is still running");
}

TEST(Process, EndsAreToldAndWhatWasSaidBefore) {
  ChildProcess child = shell("echo last >&2; printf end; exit 3");
  std::string line;
  ASSERT_EQ(child.read_line(line, 60), Got::line);
  EXPECT_EQ(line, "end");
  ASSERT_EQ(child.read_line(line, 60), Got::ended);
  EXPECT_EQ(child.ending(), "ended with exit code 3");
  EXPECT_EQ(child.errors(), "last\n");
  EXPECT_FALSE(child.succeeded());
  child.write_line("nobody reads this");

  ChildProcess killed = shell("kill -9 $$");
  EXPECT_EQ(killed.read_line(line, 60), Got::ended);
  EXPECT_EQ(killed.ending(), "was ended by signal 9");

  ChildProcess deaf = shell("exec 1>&- 2>&-; sleep 0.2");  // it closes all, and lives on for a while
  EXPECT_EQ(deaf.read_line(line, 60), Got::ended);
  EXPECT_TRUE(deaf.succeeded());
}

TEST(Process, WhereChildrenAreNotWaitedFor) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  {
    ChildProcess child = shell("echo one");
    std::string line;
    ASSERT_EQ(child.read_line(line, 60), Got::line);
    EXPECT_EQ(line, "one");
    EXPECT_EQ(child.read_line(line, 60), Got::ended);
    EXPECT_FALSE(child.succeeded());
    expect_in(child.ending(), "SIGCHLD");
  }
  ::signal(SIGCHLD, before);
}

TEST(Process, MuchOutputOnBothSides) {
  ChildProcess child = shell("i=0; while [ $i -lt 20000 ]; do echo $i; echo error $i >&2; i=$((i+1)); done");
  std::string line;
  int lines = 0;
  while (child.read_line(line, 60) == Got::line) EXPECT_EQ(line, std::to_string(lines++));
  EXPECT_EQ(lines, 20000);
  EXPECT_TRUE(child.errors().ends_with("error 19999\n"));
  EXPECT_LE(child.errors().size(), std::size_t{64} << 10);
}

TEST(Process, NothingIsLeftBehind) {
  std::string line;
  {
    ChildProcess child = shell("sleep 1000 & echo $!; wait");
    ASSERT_EQ(child.read_line(line, 60), Got::line);
  }
  expect_gone(std::stoi(line));
  expect_no_child();
}

TEST(Process, WhatCannotStart) {
  try {
    ChildProcess({"/no/such/program"});
    ADD_FAILURE() << "it started";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::io);
    expect_in(error.what(), "/no/such/program");
    expect_in(error.what(), "No such file");
  }
  EXPECT_EQ(find_program("no_such_program_at_all"), "");
  EXPECT_EQ(find_program("./x"), "./x");
  EXPECT_EQ(find_program("sh").substr(find_program("sh").rfind('/')), "/sh");
}

}  // namespace
}  // namespace convtune::process_test
