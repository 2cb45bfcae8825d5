// A vendor's shared library, opened while the program runs and never linked: an ordered list of places,
// functions by name, and what was tried, for `convtune doctor`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace convtune {

// Lists the places of a library. Tried in this order: the file that `variable` names (then nothing else
// is tried, so that a wrong name is noticed), what this process has loaded already, Python's wheels, the CUDA
// toolkit, the loader's own search.
struct LibrarySearch {
  std::string what;                        // "NVRTC", as messages call it
  const char* variable = nullptr;          // "CONVTUNE_NVRTC": an absolute path; null = none
  std::vector<std::string> sonames;        // best first: "libnvrtc.so.13", "libnvrtc.so.12"
  std::vector<std::string> wheel_folders;  // below site-packages: "nvidia/cu13/lib"
  bool in_toolkit = true;                  // whether a CUDA toolkit would hold it
};

// The folder of Python packages that SITE/convtune/lib/FILE was installed into; empty for any other file.
std::filesystem::path site_packages_of(const std::filesystem::path& file);

// A value; copies share the library, which stays loaded until the process ends (a driver does not
// survive being unloaded).
class Library {
 public:
  Library() = default;
  // Never throws: an absent library is false, with the reasons in tried().
  static Library open(const LibrarySearch& search);

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& what() const { return what_; }
  const std::string& path() const { return path_; }                 // for the file that is loaded
  const std::vector<std::string>& tried() const { return tried_; }  // "place: why not", in order
  std::string why_not() const;                                      // all of tried(), in one line
  // True where a file of it is there and none could be loaded: for want of memory, say, or of a library it
  // needs.
  bool is_unloadable() const { return handle_ == nullptr && unloadable_; }

  // Sets `function` to the function of that name. The first throws Error{unsupported} that names the
  // library and the function where there is none; the second leaves null and returns false.
  template <class Function>
  void bind(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(require(name));
  }
  template <class Function>
  bool bind_if_there(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(look_up(name));
    return function != nullptr;
  }

 private:
  bool try_place(const std::string& file, int flags);
  void* look_up(const char* name) const;  // null where there is none
  void* require(const char* name) const;  // throws where there is none

  void* handle_ = nullptr;
  bool unloadable_ = false;
  std::string what_, path_;
  std::vector<std::string> tried_;
};

}  // namespace convtune
