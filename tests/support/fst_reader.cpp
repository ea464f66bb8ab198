// By the FST library that ships with Verilator.
#include "fst_reader.hpp"

#include "gtkwave/fstapi.h"

namespace tpu::test {
namespace {

struct Reading {
  std::map<fstHandle, std::vector<std::string>> names;            // one handle may have several
  std::map<fstHandle, std::map<std::string, std::string>> enums;  // names by bits
  WaveChanges changes;

  void add(fstHandle handle, uint64_t time, std::string value) {
    if (const auto named = enums.find(handle); named != enums.end()) {
      const auto literal = named->second.find(value);
      value = literal != named->second.end() ? literal->second : value;
    }
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

std::map<std::string, std::string> enum_table(const char* text) {
  std::map<std::string, std::string> table;
  if (fstETab* const etab = fstUtilityExtractEnumTableFromString(text)) {
    for (uint32_t i = 0; i < etab->elem_count; ++i) {
      table[etab->val_arr[i]] = etab->literal_arr[i];
    }
    fstUtilityFreeEnumTable(etab);
  }
  return table;
}

}  // namespace

WaveChanges read_fst(const std::string& path) {
  void* fst = fstReaderOpen(path.c_str());
  if (fst == nullptr) {
    return {};
  }
  Reading reading;
  std::vector<std::string> scopes = {""};
  std::map<uint64_t, std::map<std::string, std::string>> tables;  // by number
  uint64_t table = 0;                                             // of the next signal; 0: none
  while (const fstHier* entry = fstReaderIterateHier(fst)) {
    if (entry->htyp == FST_HT_SCOPE) {
      scopes.push_back(scopes.back() + entry->u.scope.name + ".");
    } else if (entry->htyp == FST_HT_UPSCOPE) {
      scopes.pop_back();
    } else if (entry->htyp == FST_HT_ATTRBEGIN && entry->u.attr.typ == FST_AT_MISC &&
               entry->u.attr.subtype == FST_MT_ENUMTABLE) {
      if (entry->u.attr.name_length != 0) {
        tables[entry->u.attr.arg] = enum_table(entry->u.attr.name);
      } else {
        table = entry->u.attr.arg;
      }
    } else if (entry->htyp == FST_HT_VAR) {
      if (table != 0) {
        reading.enums[entry->u.var.handle] = tables[table];
        table = 0;
      }
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
