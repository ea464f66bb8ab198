// Target description of GDB for RV32IMC with machine mode.
#include "debug/target_xml.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "hart/hart_csr.hpp"
#include "hart/hart_insn.hpp"

namespace tpu::model {
namespace {

constexpr uint32_t kFirstCsr = 65;  // GDB's number of CSR 0, as in other stubs

struct Csr {
  std::string_view name;
  uint32_t number;
};

constexpr Csr kCsrs[] = {{"mstatus", kCsrMstatus},
                         {"misa", kCsrMisa},
                         {"mie", kCsrMie},
                         {"mtvec", kCsrMtvec},
                         {"mstatush", kCsrMstatush},
                         {"mscratch", kCsrMscratch},
                         {"mepc", kCsrMepc},
                         {"mcause", kCsrMcause},
                         {"mtval", kCsrMtval},
                         {"mip", kCsrMip},
                         {"mcycle", kCsrMcycle},
                         {"minstret", kCsrMinstret},
                         {"mcycleh", kCsrMcycleh},
                         {"minstreth", kCsrMinstreth},
                         {"mvendorid", kCsrMvendorid},
                         {"marchid", kCsrMarchid},
                         {"mimpid", kCsrMimpid},
                         {"mhartid", kCsrMhartid},
                         {"mconfigptr", kCsrMconfigptr}};

constexpr std::array<std::string_view, kRegisterCount> kNames = {
    "zero", "ra", "sp", "gp", "tp",  "t0",  "t1", "t2", "fp", "s1", "a0",
    "a1",   "a2", "a3", "a4", "a5",  "a6",  "a7", "s2", "s3", "s4", "s5",
    "s6",   "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6"};

}  // namespace

std::string target_xml() {
  std::string xml =
      "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n"
      "<target version=\"1.0\">\n<architecture>riscv:rv32</architecture>\n"
      "<feature name=\"org.gnu.gdb.riscv.cpu\">\n";
  for (size_t i = 0; i < kNames.size(); ++i) {
    xml += fmt::format("<reg name=\"{}\" bitsize=\"32\" type=\"{}\" regnum=\"{}\"/>\n", kNames[i],
                       kNames[i] == "ra"   ? "code_ptr"
                       : kNames[i] == "sp" ? "data_ptr"
                                           : "int",
                       i);
  }
  xml += fmt::format(
      "<reg name=\"pc\" bitsize=\"32\" type=\"code_ptr\" regnum=\"{}\"/>\n</feature>\n"
      "<feature name=\"org.gnu.gdb.riscv.csr\">\n",
      kGdbPc);
  for (const Csr& csr : kCsrs) {
    xml += fmt::format(
        "<reg name=\"{}\" bitsize=\"32\" type=\"int\" group=\"csr\" save-restore=\"no\" "
        "regnum=\"{}\"/>\n",
        csr.name, kFirstCsr + csr.number);
  }
  return xml + "</feature>\n</target>\n";
}

std::optional<uint32_t> gdb_csr(uint32_t number) {
  const auto found = std::ranges::find(kCsrs, number - kFirstCsr, &Csr::number);
  return found == std::end(kCsrs) ? std::nullopt : std::optional(found->number);
}

}  // namespace tpu::model
