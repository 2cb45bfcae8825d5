// A whole kernel of ours in place of a document's convolution: what it would take, and its file.
#pragma once

#include <string>

#include "convtune/error.h"
#include "convtune/refine.h"

namespace convtune::cli {

struct WholeAnswer {
  bool whole;  // it is what is asked for; else the stage's answer is
  std::string document, target, class_file, problem, python;  // as they were given

  // A sentence about it beside the stage's answer; empty: the document is about no convolution.
  std::string line(const RefineDocument& asked) const;
  // The file, "triton" or "cuda". Throws Error where there is none to write.
  std::string file(const RefineDocument& asked, const std::string& format) const;

 private:
  std::string command() const;
  std::string hint(const Error& error) const;  // advice that may help where nothing was given
};

}  // namespace convtune::cli
