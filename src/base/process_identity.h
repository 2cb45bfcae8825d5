// Which process this is, and whether another one still lives: for marks in files that processes share.
#pragma once

#include <string>
#include <string_view>

namespace convtune {

// One word that no other process of this boot of this machine has. A part that cannot be found is left empty.
std::string process_identity();

enum class Life {
  living,
  dead,
  unknown,  // a process of another machine, boot or container, whose processes cannot be seen from here
};
Life life_of(std::string_view identity);

}  // namespace convtune
