// Programs that are not ours, a profiler or Python: found, started, and talked to by lines within limits.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/child.h"
#include "base/file_calls.h"

namespace convtune {

// The file that would run for this name: itself if it has a '/', else the first executable of that name in
// PATH's folders and then in `folders`. Empty where there is none.
std::string find_program(const std::string& name, const std::vector<std::string>& folders = {});

class ChildProcess {
 public:
  // command[0] is a file (find_program). `variables`: "NAME=value" beside those of this process. Throws
  // Error{io} for what cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command,
                        const std::vector<std::string>& variables = {});
  // One line to its standard input. A child that has gone is noticed at the next read.
  void write_line(std::string_view line);

  enum class Got { line, ended, late, cancelled };
  // The next line of its standard output, without its end. Ended: there is no other, and ending() says how.
  Got read_line(std::string& line, double seconds, const std::function<bool()>& cancelled = {});

  const std::string& errors() const {
    return child_.received(kErr);
  }                                                      // the end of its standard error, so far
  bool succeeded() const { return child_.succeeded(); }  // it ended, with exit code 0
  std::string ending() const { return child_.ending(); }

 private:
  enum Pipe : std::size_t { kOut, kErr, kWhyNot, kPipes };
  static Child start(const std::vector<std::string>& command, const std::vector<std::string>& variables,
                     Fd& in);

  Fd in_;
  Child child_;  // ended, with all that it started in its group, before anything else goes
};

}  // namespace convtune
