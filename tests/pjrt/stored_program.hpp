// Programs in assembler as stored executables, on device 3.
#pragma once

#include "asm/assembler.hpp"
#include "plugin_calls.hpp"

namespace tpu::test {

inline void put_part(std::string& to, std::string_view part) {
  for (unsigned shift = 0; shift < 64; shift += 8) {
    to.push_back(static_cast<char>(part.size() >> shift & 0xff));
  }
  to += part;
}

inline PJRT_LoadedExecutable* load_stored(PJRT_Client* client, const exe::ExecutableT& program) {
  // CompileOptionsProto {executable_build_options {device_ordinal: 3}}
  constexpr std::string_view kOnDevice3 = "\x1a\x02\x08\x03";
  const std::vector<std::byte> container = exe::write_executable(program);
  std::string bytes = "TPUPJRT1";
  put_part(bytes, kOnDevice3);
  put_part(bytes, "");
  put_part(bytes, {reinterpret_cast<const char*>(container.data()), container.size()});
  auto load = args_of<PJRT_Executable_DeserializeAndLoad_Args>();
  load.client = client;
  load.serialized_executable = bytes.data();
  load.serialized_executable_size = bytes.size();
  EXPECT_EQ(outcome_of(api().PJRT_Executable_DeserializeAndLoad(&load)).text, "");
  return load.loaded_executable;
}

}  // namespace tpu::test
