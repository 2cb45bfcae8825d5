// Child processes that are talked to by lines: started with pipes, waited for within limits, and never left
// behind. For programs that are not ours: a profiler, Python.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace convtune {

// The file that would run for this name: itself if it has a '/', else the first executable of that name in
// PATH's folders and then in `folders`. Empty where there is none.
std::string find_program(const std::string& name, const std::vector<std::string>& folders = {});

class ChildProcess {
 public:
  // command[0] is a file (find_program). Of a group of its own, so that Ctrl-C is ours to answer.
  // `variables`: "NAME=value" beside those of this process. Killed when the thread that starts it ends.
  // Throws Error{io} for what cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command,
                        const std::vector<std::string>& variables = {});
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // ends it and all that it started in its group

  // One line to its standard input. A child that has gone is noticed at the next read.
  void write_line(std::string_view line);

  enum class Got { line, ended, late, cancelled };
  // The next line of its standard output, without its end. Ended: there is no other, and ending() says how.
  Got read_line(std::string& line, double seconds, const std::function<bool()>& cancelled = {});

  const std::string& errors() const { return errors_; }  // the end of its standard error, so far
  bool succeeded() const { return status_ == 0; }        // it ended, with exit code 0
  std::string ending() const;                            // "ended with exit code 1", "was ended by signal 9"

 private:
  void receive(int milliseconds);
  bool has_ended() const;
  void end();

  pid_t process_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  int status_ = -1;  // of waitpid; -1 while it runs, or where it was not told
  std::string output_, errors_;
};

}  // namespace convtune
