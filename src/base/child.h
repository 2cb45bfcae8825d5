// A child process by fork, in a group of its own, so that Ctrl-C is this process's to answer: what comes
// through its pipes, and how it ended. For ChildProcess, which becomes another program, and for children that
// compile.
#pragma once

#include <sys/types.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file_calls.h"

namespace convtune {

class Child {
 public:
  // Forks. The child calls `work` with the ends of `pipes` pipes, to write to, and exits with 0 when it
  // returns. It is killed when the thread that starts it ends. Throws Error{io} where no process is to be
  // had.
  Child(std::size_t pipes, const std::function<void(std::span<const int>)>& work);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();  // end()

  // Takes what these children have written, and waits for some of it at most so long.
  static void receive(std::span<Child* const> children, int milliseconds);
  std::string& received(std::size_t pipe) { return pipes_[pipe].text; }
  const std::string& received(std::size_t pipe) const { return pipes_[pipe].text; }
  bool closed(std::size_t pipe) const { return !pipes_[pipe].fd.ok(); }  // nothing more can come

  bool running() const { return process_ >= 0; }  // end() was not called
  bool has_ended() const;                         // by itself
  void end();                                     // kills it and all that it started in its group
  bool succeeded() const { return status_ == 0; }
  std::string ending() const;  // "ended with exit code 1", "was ended by signal 9"

 private:
  struct Pipe {
    Fd fd;
    std::string text;
  };

  pid_t process_ = -1;
  int status_ = -1;  // the status of waitpid; -1 while it runs, or where it was not told
  std::vector<Pipe> pipes_;
};

}  // namespace convtune
