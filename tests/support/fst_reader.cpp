// By the FST library that ships with Verilator.
#include "fst_reader.hpp"

#include "gtkwave/fstapi.h"

namespace tpu::test {
namespace {

struct Reading {
  std::map<fstHandle, std::vector<std::string>> names;  // one handle may have several
  WaveChanges changes;

  void add(fstHandle handle, uint64_t time, std::string value) {
    for (const std::string& name : names[handle]) {
      changes[name].push_back({time, value});
    }
  }
};

void on_change(void* user, uint64_t time, fstHandle handle, const unsigned char* value) {
  static_cast<Reading*>(user)->add(handle, time, reinterpret_cast<const char*>(value));
}

void on_text(void* user, uint64_t time, fstHandle handle, const unsigned char* value,
             uint32_t size) {
  static_cast<Reading*>(user)->add(handle, time,
                                   std::string(reinterpret_cast<const char*>(value), size));
}

}  // namespace

WaveChanges read_fst(const std::string& path) {
  void* fst = fstReaderOpen(path.c_str());
  if (fst == nullptr) {
    return {};
  }
  Reading reading;
  std::vector<std::string> scopes = {""};
  while (const fstHier* entry = fstReaderIterateHier(fst)) {
    if (entry->htyp == FST_HT_SCOPE) {
      scopes.push_back(scopes.back() + entry->u.scope.name + ".");
    } else if (entry->htyp == FST_HT_UPSCOPE) {
      scopes.pop_back();
    } else if (entry->htyp == FST_HT_VAR) {
      const std::string name = entry->u.var.name;
      reading.names[entry->u.var.handle].push_back(scopes.back() + name.substr(0, name.find(' ')));
    }
  }
  fstReaderSetFacProcessMaskAll(fst);
  fstReaderIterBlocks2(fst, on_change, on_text, &reading, nullptr);
  fstReaderClose(fst);
  return reading.changes;
}

}  // namespace tpu::test
