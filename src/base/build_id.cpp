// See build_id.h. Only the headers and notes of the file are read: some hundred bytes.
#include "base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string_view>

namespace convtune {
namespace {

constexpr std::size_t kMostHeaders = 1024;
constexpr std::size_t kMostNoteBytes = std::size_t{1} << 20;

template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T* into, std::size_t count) {
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(into), static_cast<std::streamsize>(count * sizeof(T)));
  return file.good();
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// The build ID in a segment of notes: entries of a header, a name and a description, padded to 4 bytes each.
std::string id_among(std::string_view notes) {
  const auto padded = [](std::size_t size) { return (size + 3) / 4 * 4; };
  Elf64_Nhdr note;
  while (notes.size() >= sizeof note) {
    std::memcpy(&note, notes.data(), sizeof note);
    notes.remove_prefix(sizeof note);
    const std::size_t name = padded(note.n_namesz), size = padded(note.n_descsz);
    if (name > notes.size() || size > notes.size() - name) return {};
    constexpr std::string_view kGnu("GNU", 4);
    if (note.n_type == NT_GNU_BUILD_ID && notes.substr(0, note.n_namesz) == kGnu)
      return hexadecimal(notes.substr(name, note.n_descsz));
    notes.remove_prefix(name + size);
  }
  return {};
}

std::string id_in(std::ifstream& file) {
  Elf64_Ehdr header;
  if (!read_at(file, 0, &header, 1) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phnum > kMostHeaders)
    return {};
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    if (!read_at(file, header.e_phoff + i * sizeof segment, &segment, 1)) return {};
    if (segment.p_type != PT_NOTE || segment.p_filesz > kMostNoteBytes) continue;
    std::string notes(segment.p_filesz, '\0');
    if (!read_at(file, segment.p_offset, notes.data(), notes.size())) return {};
    if (std::string id = id_among(notes); !id.empty()) return id;
  }
  return {};
}

}  // namespace

std::string build_id(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  std::ifstream file(path, std::ios::binary);
  if (std::string id = id_in(file); !id.empty()) return id;
  return fmt::format("{} bytes of {}", status.st_size, status.st_mtime);
}

}  // namespace convtune
