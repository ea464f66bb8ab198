# tpu_library(), tpu_messages(), tpu_executable(), tpu_test(): the only way targets of this project are made, so that
# flags are the same everywhere. No global flags: everything hangs on the interface target tpu_flags.

# The target's processor: x86-64 or 64-bit Arm (docs/aarch64.md).
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(TPU_X86_64 ON)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(TPU_X86_64 OFF)
else()
  message(FATAL_ERROR "tpuboard needs an x86-64 or aarch64 processor, found '${CMAKE_SYSTEM_PROCESSOR}'")
endif()

add_library(tpu_flags INTERFACE)
# -ffp-contract=off: g++ would otherwise fuse a*b+c on targets with FMA and change results.
target_compile_options(tpu_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Werror -ffp-contract=off)
# A plain char is signed, as on x86-64.
if(NOT TPU_X86_64)
  target_compile_options(tpu_flags INTERFACE -fsigned-char)
endif()
# g++ 12 sees overlapping copies inside std::string at -O3 that are not there (GCC bug 105651).
target_compile_options(tpu_flags INTERFACE $<$<CONFIG:Release>:-Wno-restrict>)
# It takes the parts of a unity file for headers, in which a class may not hold a type of an anonymous namespace.
target_compile_options(tpu_flags INTERFACE $<$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<COMPILE_LANGUAGE:CXX>>:-Wno-subobject-linkage>)
if(TPU_SANITIZE)
  target_compile_options(tpu_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                         -fno-omit-frame-pointer)
  target_link_options(tpu_flags INTERFACE -fsanitize=address,undefined)
endif()
if(TPU_TSAN)
  target_compile_options(tpu_flags INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(tpu_flags INTERFACE -fsanitize=thread)
endif()

# tpu_cold(<target>): a release build takes -Og for a target whose own speed does not matter. It compiles a third faster
# than -O2 (docs/adr/0018-unity-builds.md).
function(tpu_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Og>)
endfunction()

# tpu_library(<name> [HOT|COLD] SOURCES ... [DEPS ...] [PRIVATE_DEPS ...] [INCLUDE dir])
# Makes the static library tpu_<name> with the alias tpu::<name>. INCLUDE defaults to the folder itself. HOT: its speed
# is the simulator's, so that a release build takes -O3. COLD: as tpu_cold().
function(tpu_library name)
  cmake_parse_arguments(ARG "HOT;COLD" "INCLUDE" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  if(NOT ARG_INCLUDE)
    set(ARG_INCLUDE ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
  if(ARG_SOURCES)
    add_library(tpu_${name} STATIC ${ARG_SOURCES})
    target_include_directories(tpu_${name} PUBLIC $<BUILD_INTERFACE:${ARG_INCLUDE}>)
    target_link_libraries(tpu_${name} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:tpu_flags> ${ARG_PRIVATE_DEPS})
    if(ARG_HOT)
      target_compile_options(tpu_${name} PRIVATE $<$<CONFIG:Release>:-O3>)
    elseif(ARG_COLD)
      tpu_cold(tpu_${name})
    endif()
  else()
    add_library(tpu_${name} INTERFACE)
    target_include_directories(tpu_${name} INTERFACE $<BUILD_INTERFACE:${ARG_INCLUDE}>)
    target_link_libraries(tpu_${name} INTERFACE ${ARG_DEPS})
  endif()
  add_library(tpu::${name} ALIAS tpu_${name})
endfunction()

# tpu_copy(<name> OF library ... OPTIONS flag ... [WITHOUT regex] [SOURCES ...] [INCLUDE dir ...] [DEPS ...])
# The static library tpu_<name>: the sources of other libraries, less those that match WITHOUT, compiled once more with
# OPTIONS, which whoever links it gets too. Where the build joins sources, a copy joins those that its original joins.
function(tpu_copy name)
  cmake_parse_arguments(ARG "" "WITHOUT" "OF;OPTIONS;SOURCES;INCLUDE;DEPS" ${ARGN})
  set(sources ${ARG_SOURCES})
  foreach(library ${ARG_OF})
    get_target_property(own ${library} SOURCES)
    get_target_property(folder ${library} SOURCE_DIR)
    set(count 0)
    foreach(source ${own})
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
      if(NOT ARG_WITHOUT OR NOT source MATCHES "${ARG_WITHOUT}")
        math(EXPR batch "${count} / ${CMAKE_UNITY_BUILD_BATCH_SIZE}")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${library}_${batch})
        list(APPEND sources ${source})
      endif()
      math(EXPR count "${count} + 1")
    endforeach()
  endforeach()
  add_library(tpu_${name} STATIC EXCLUDE_FROM_ALL ${sources})
  get_property(joined CACHE CMAKE_UNITY_BUILD PROPERTY VALUE)  # tests switch the variable off for themselves
  set_target_properties(tpu_${name} PROPERTIES UNITY_BUILD "${joined}" UNITY_BUILD_MODE GROUP TPU_COPY ON)
  target_compile_options(tpu_${name} PUBLIC ${ARG_OPTIONS})  # the last -O wins over the build type's
  # The original is compiled with all warnings. With sanitizers g++ warns of more, wrongly.
  target_compile_options(tpu_${name} PRIVATE -w)
  target_link_options(tpu_${name} PUBLIC ${ARG_OPTIONS})
  target_include_directories(tpu_${name} PUBLIC ${CMAKE_SOURCE_DIR} ${ARG_INCLUDE})
  target_link_libraries(tpu_${name} PUBLIC tpu_flags ${ARG_DEPS})
endfunction()

# tpu_messages(<name> FILE.proto)
# The static library <name>: protobuf messages. What protoc writes is not ours, so it gets none of our flags.
function(tpu_messages name proto)
  cmake_path(ABSOLUTE_PATH proto)
  cmake_path(GET proto PARENT_PATH folder)
  cmake_path(GET proto STEM stem)
  set(wire ${CMAKE_CURRENT_BINARY_DIR}/wire)
  add_custom_command(
    OUTPUT ${wire}/${stem}.pb.cc ${wire}/${stem}.pb.h
    COMMAND ${CMAKE_COMMAND} -E make_directory ${wire}
    COMMAND protobuf::protoc --cpp_out=${wire} --proto_path=${folder} ${proto}
    DEPENDS ${proto}
    VERBATIM)
  add_library(${name} STATIC ${wire}/${stem}.pb.cc)
  target_include_directories(${name} SYSTEM PUBLIC ${wire})
  target_link_libraries(${name} PUBLIC protobuf::libprotobuf-lite)
  target_compile_options(${name} PRIVATE -w)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
endfunction()

# tpu_executable(<name> SOURCES ... [DEPS ...])
function(tpu_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE tpu_flags ${ARG_DEPS})
endfunction()

# tpu_test(<name> SOURCES ... [DEPS ...] [LABELS ...] [LONG pattern ...] [TIMEOUT seconds] [SYSTEMC])
# A GoogleTest program; every TEST is its own CTest entry, and has the label `fast` but those of LONG: patterns as of
# --gtest_filter for tests that take more than about a second. Without TIMEOUT the former end after 60 seconds, those of
# LONG after 180: on a loaded host they take several times as long. SYSTEMC: main is tests/sc_test_main.cpp.
function(tpu_test name)
  cmake_parse_arguments(ARG "SYSTEMC" "TIMEOUT" "SOURCES;DEPS;LABELS;LONG" ${ARGN})
  set(timeout 60)
  set(long_timeout 180)
  if(ARG_TIMEOUT)
    set(timeout ${ARG_TIMEOUT})
    set(long_timeout ${ARG_TIMEOUT})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(ARG_SYSTEMC)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:tpu_sc_test_main>)
    target_link_libraries(${name} PRIVATE tpu_flags ${ARG_DEPS} tpu_systemc GTest::gtest GTest::gmock)
  else()
    # gtest_main comes first: SystemC's library has a main() of its own, which must not win.
    target_link_libraries(${name} PRIVATE tpu_flags GTest::gtest_main ${ARG_DEPS} GTest::gtest GTest::gmock)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  tpu_test_flags(${name})
  tpu_reuse_test_headers(${name} ${ARG_DEPS})
  list(JOIN ARG_LONG ":" long)
  tpu_discover_tests(${name} "-${long}" ${timeout} fast ${ARG_LABELS})
  if(long)
    tpu_discover_tests(${name} "${long}" ${long_timeout} ${ARG_LABELS})
  endif()
endfunction()

# tpu_test_flags(<target>): how sources of tests are compiled in a release build. What a test itself computes is little:
# the optimizer would cost more than it gains (docs/adr/0018-unity-builds.md). The compiler needs less than the 1 GB
# from which on it collects garbage.
function(tpu_test_flags target)
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:-Og> $<$<CONFIG:Release>:--param=ggc-min-heapsize=1000000>)
endfunction()

# tpu_reuse_test_headers(<test> <dependency> ...): with the precompiled headers of tests, where the build has them. They
# are for the flags of most tests: one that links a copy of tpu_copy() has flags of its own.
function(tpu_reuse_test_headers name)
  set(copies)
  foreach(library ${ARGN})
    if(TARGET ${library})
      get_target_property(copy ${library} TPU_COPY)
      if(copy)
        list(APPEND copies ${library})
      endif()
    endif()
  endforeach()
  if(TARGET tpu_test_headers AND NOT copies)
    target_precompile_headers(${name} REUSE_FROM tpu_test_headers)
    tpu_cache_precompiled(${name})
  endif()
endfunction()

# tpu_cache_precompiled(<target>): ccache takes sources with precompiled headers only when told so.
function(tpu_cache_precompiled target)
  if(CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_LAUNCHER STREQUAL CCACHE_PROGRAM)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${CCACHE_PROGRAM}")
  endif()
endfunction()

# tpu_discover_tests(<program> <filter> <timeout> <label> ...): the tests of a program that pass a --gtest_filter.
function(tpu_discover_tests name filter timeout)
  # gtest_discover_tests() takes a list apart on three levels of scripts before a test gets its labels.
  list(JOIN ARGN [[\\\\\\\;]] labels)
  gtest_discover_tests(${name} TEST_PREFIX "${name}." TEST_FILTER "${filter}" NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST
                       DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${timeout} LABELS "${labels}")
endfunction()
