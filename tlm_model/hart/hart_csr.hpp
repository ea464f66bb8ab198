// Numbers of the RISC-V privileged architecture (version 1.12) that the control hart implements.
#pragma once

#include <cstdint>

namespace tpu::model {

inline constexpr uint32_t kMstatusMie = 1U << 3;
inline constexpr uint32_t kMstatusMpie = 1U << 7;
inline constexpr uint32_t kMstatusMpp = 3U << 11;  // always machine mode

inline constexpr uint32_t kCauseInterrupt = 1U << 31;
inline constexpr uint32_t kCauseFetchAccess = 1;
inline constexpr uint32_t kCauseIllegal = 2;
inline constexpr uint32_t kCauseBreakpoint = 3;
inline constexpr uint32_t kCauseLoadMisaligned = 4;
inline constexpr uint32_t kCauseLoadAccess = 5;
inline constexpr uint32_t kCauseStoreMisaligned = 6;
inline constexpr uint32_t kCauseStoreAccess = 7;
inline constexpr uint32_t kCauseMachineEcall = 11;

inline constexpr uint32_t kCsrMstatus = 0x300;
inline constexpr uint32_t kCsrMisa = 0x301;
inline constexpr uint32_t kCsrMie = 0x304;
inline constexpr uint32_t kCsrMtvec = 0x305;
inline constexpr uint32_t kCsrMstatush = 0x310;
inline constexpr uint32_t kCsrMscratch = 0x340;
inline constexpr uint32_t kCsrMepc = 0x341;
inline constexpr uint32_t kCsrMcause = 0x342;
inline constexpr uint32_t kCsrMtval = 0x343;
inline constexpr uint32_t kCsrMip = 0x344;
inline constexpr uint32_t kCsrMcycle = 0xB00;
inline constexpr uint32_t kCsrMinstret = 0xB02;
inline constexpr uint32_t kCsrMcycleh = 0xB80;
inline constexpr uint32_t kCsrMinstreth = 0xB82;
inline constexpr uint32_t kCsrMvendorid = 0xF11;
inline constexpr uint32_t kCsrMarchid = 0xF12;
inline constexpr uint32_t kCsrMimpid = 0xF13;
inline constexpr uint32_t kCsrMhartid = 0xF14;
inline constexpr uint32_t kCsrMconfigptr = 0xF15;

}  // namespace tpu::model
