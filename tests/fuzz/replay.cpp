// Does the work of libFuzzer's own main() without a mutation: the kept corpus, each text once, so that it is
// a test with any compiler. A corpus is a file with one text a line, in hexadecimal digits.
#include <cstddef>
#include <fstream>
#include <iostream>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size);

int main(int argc, char** argv) {
  std::size_t texts = 0;
  for (int i = 1; i < argc; ++i) {
    std::ifstream in(argv[i]);
    for (std::string line; std::getline(in, line); ++texts) {
      std::string text;
      for (std::size_t at = 0; at + 1 < line.size(); at += 2)
        text.push_back(static_cast<char>(std::stoi(line.substr(at, 2), nullptr, 16)));
      LLVMFuzzerTestOneInput(reinterpret_cast<const unsigned char*>(text.data()), text.size());
    }
  }
  std::cout << texts << " texts\n";
  return texts > 0 ? 0 : 1;
}
