// dlopen in a fixed order of places. Only absolute paths and sonames are ever opened, and nothing from
// the environment in a program that runs with more rights than its caller.
#include "base/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "convtune/error.h"

namespace convtune {
namespace {

namespace fs = std::filesystem;

// An absolute folder or file that the environment names; empty where it names none.
fs::path from_environment(const char* variable) {
  const char* value = ::secure_getenv(variable);
  return value != nullptr && fs::path(value).is_absolute() ? fs::path(value) : fs::path();
}

// The file that holds this function: the program, or the shared library that it was linked into.
fs::path own_file() {
  Dl_info info = {};
  std::error_code ignored;
  if (::dladdr(reinterpret_cast<void*>(&own_file), &info) == 0 || info.dli_fname == nullptr) return {};
  return fs::canonical(info.dli_fname, ignored);
}

// If this library was installed as a Python package, that package's neighbours: an interpreter need not be
// of an active environment. Then PREFIX/lib/python3.N/site-packages of the active virtual or conda
// environment.
std::vector<fs::path> site_packages() {
  std::vector<fs::path> found;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const fs::path prefix = from_environment(variable);
    if (prefix.empty()) continue;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(prefix / "lib", ignored))
      if (entry.path().filename().string().starts_with("python3"))
        found.push_back(entry.path() / "site-packages");
  }
  std::sort(found.begin(), found.end());
  if (const fs::path site = site_packages_of(own_file()); !site.empty()) found.insert(found.begin(), site);
  return found;
}

// Absolute folders in which to look, in order.
std::vector<fs::path> folders(const LibrarySearch& search) {
  std::vector<fs::path> found;
  for (const fs::path& site : site_packages())
    for (const std::string& folder : search.wheel_folders)
      found.push_back((site / folder).lexically_normal());
  if (!search.in_toolkit) return found;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const fs::path home = from_environment(variable); !home.empty()) found.push_back(home / "lib64");
  found.emplace_back("/usr/local/cuda/lib64");
  return found;
}

}  // namespace

fs::path site_packages_of(const fs::path& file) {
  const fs::path package = file.parent_path().parent_path(), site = package.parent_path();
  const bool installed = package.filename() == "convtune" &&
                         (site.filename() == "site-packages" || site.filename() == "dist-packages");
  return installed ? site : fs::path();
}

Library Library::open(const LibrarySearch& search) {
  Library library;
  library.what_ = search.what;
  const char* named = search.variable != nullptr ? ::secure_getenv(search.variable) : nullptr;
  if (named != nullptr && *named != '\0') {
    if (fs::path(named).is_absolute())
      library.try_place(named, RTLD_NOW | RTLD_LOCAL);
    else
      library.tried_.push_back(
          fmt::format("{}: {} must name a file by its absolute path", named, search.variable));
    return library;
  }
  for (const std::string& soname : search.sonames)
    if (library.try_place(soname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) return library;
  library.tried_.clear();  // not being loaded yet is no finding
  for (const fs::path& folder : folders(search))
    for (const std::string& soname : search.sonames)
      if (library.try_place(folder / soname, RTLD_NOW | RTLD_LOCAL)) return library;
  for (const std::string& soname : search.sonames)
    if (library.try_place(soname, RTLD_NOW | RTLD_LOCAL)) return library;
  return library;
}

bool Library::try_place(const std::string& file, int flags) {
  std::error_code ignored;
  if (fs::path(file).is_absolute() && !fs::exists(file, ignored)) {
    tried_.push_back(file + ": no such file");
    return false;
  }
  handle_ = ::dlopen(file.c_str(), flags);
  if (handle_ == nullptr) {
    const char* why = ::dlerror();
    const std::string text = why != nullptr ? why : "not loaded";
    // The loader says this of a soname that it finds nowhere; of what is there it says what is wrong with it.
    const bool absent = text.starts_with(file + ": cannot open shared object file: No such file");
    unloadable_ |= !absent && (flags & RTLD_NOLOAD) == 0;
    tried_.push_back(text.starts_with(file) ? text : file + ": " + text);
    return false;
  }
  const link_map* map = nullptr;
  const bool known = ::dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr;
  path_ = known && *map->l_name != '\0' ? map->l_name : file;
  return true;
}

std::string Library::why_not() const {
  std::string text;
  for (const std::string& place : tried_) text += (text.empty() ? "" : "; ") + place;
  return text;
}

void* Library::look_up(const char* name) const {
  return handle_ != nullptr ? ::dlsym(handle_, name) : nullptr;
}

void* Library::require(const char* name) const {
  if (void* found = look_up(name)) return found;
  if (handle_ == nullptr)
    throw Error(ErrorKind::unsupported, fmt::format("{} cannot be loaded: {}", what_, why_not()));
  throw Error(ErrorKind::unsupported,
              fmt::format("{} ({}) has no function {}; it is too old or not {}", what_, path_, name, what_));
}

}  // namespace convtune
