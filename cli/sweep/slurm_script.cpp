// Words on the command line of sbatch go before those of the script: sbatch --array=0-23%4.
#include "cli/sweep/slurm_script.hpp"

#include <fmt/format.h>

namespace tpu::driver {

std::string shell_word(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) {
    return text;
  }
  std::string quoted = "'";
  for (const char c : text) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return quoted + "'";
}

std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    line += (line.empty() ? "" : " ") + shell_word(word);
  }
  return line;
}

std::string slurm_script(const Sweep& sweep, const std::filesystem::path& program,
                         const std::filesystem::path& out) {
  const std::filesystem::path file = std::filesystem::absolute(sweep.file).lexically_normal();
  const std::string line =
      shell_line({program.string(), "sweep", file.string(), "--out", out.string()});
  std::string script =
      fmt::format("#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --array=0-{}\n#SBATCH --output={}\n",
                  shell_word(file.stem().string()), sweep.rows.size() - 1,
                  shell_word((out / "slurm-%a.txt").string()));
  for (const auto& [key, value] : sweep.slurm) {
    script += fmt::format("#SBATCH --{}={}\n", key, shell_word(value));
  }
  return script +
         fmt::format(
             "# {} rows; a row that is complete is not run again. The table, when all have ended:\n"
             "#   {} --collect\n"
             "exec {} --task \"$SLURM_ARRAY_TASK_ID\"\n",
             sweep.rows.size(), line, line);
}

}  // namespace tpu::driver
