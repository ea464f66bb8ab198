// artifact-print: prints the graphs that the import makes of artifacts. Test tool, for comparing
// the forms in which one program is written. Usage: artifact-print ARTIFACT..; the graph of each,
// without calls, or "error: .." where it is refused, goes to ARTIFACT.txt.
#include <fstream>

#include "import/import.hpp"
#include "passes/inline.hpp"

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string path = argv[i];
    std::ofstream out(path + ".txt");
    try {
      tpu::compiler::Module module = tpu::compiler::import_program_file(path);
      tpu::compiler::inline_calls(module);
      module.name = "m";
      out << tpu::compiler::print(module);
    } catch (const std::exception& e) {
      out << "error: " << e.what() << "\n";
    }
  }
  return 0;
}
