# tpu_verilate(): SystemVerilog to a static C++ library by Verilator, at build time and as one translation unit.
# Generated code is not ours: it gets no -Werror, and its headers are SYSTEM for whoever links the library.
find_program(VERILATOR_PROGRAM verilator REQUIRED)
find_path(VERILATOR_INCLUDE_DIR verilated.h PATHS /usr/share/verilator/include $ENV{VERILATOR_ROOT}/include
          REQUIRED NO_CMAKE_FIND_ROOT_PATH)  # the program's own, whatever the target
find_package(ZLIB REQUIRED)

add_library(tpu_verilated STATIC EXCLUDE_FROM_ALL ${VERILATOR_INCLUDE_DIR}/verilated.cpp
            ${VERILATOR_INCLUDE_DIR}/verilated_threads.cpp ${VERILATOR_INCLUDE_DIR}/verilated_fst_c.cpp
            ${TPU_RTL_RUN_DIR}/assertions.cpp)
target_include_directories(tpu_verilated PUBLIC ${TPU_RTL_RUN_DIR}/..)
target_include_directories(tpu_verilated SYSTEM PUBLIC ${VERILATOR_INCLUDE_DIR}
                           ${VERILATOR_INCLUDE_DIR}/vltstd)
target_compile_definitions(tpu_verilated PUBLIC VM_COVERAGE=0 VM_SC=0 VM_TRACE=1 VM_TRACE_FST=1 VM_TRACE_VCD=0)
# Failed assertions and text go to rtl/run, not to abort() and stdout.
target_compile_definitions(tpu_verilated PRIVATE VL_USER_STOP VL_PRINTF=tpu_verilator_text)
target_compile_options(tpu_verilated PRIVATE -g0 -w -include ${TPU_RTL_RUN_DIR}/verilator_text.h)
set_target_properties(tpu_verilated PROPERTIES UNITY_BUILD OFF)
target_link_libraries(tpu_verilated PUBLIC ZLIB::ZLIB Threads::Threads)

# tpu_verilate(<name> TOP module SOURCES ... [PARAMETERS Rows=128 ...] [ARGS ...] [OPTIMIZE -O1])
# Makes tpu_<name> (alias tpu::<name>) with the class V<name> in V<name>.h. FST tracing is compiled in and costs
# nothing until a trace is opened. OPTIMIZE (default -O3) goes to the C++ compiler: code without loops, as of instance
# arrays, takes minutes at -O3 and gains little.
function(tpu_verilate name)
  cmake_parse_arguments(ARG "" "TOP;OPTIMIZE" "SOURCES;PARAMETERS;ARGS" ${ARGN})
  if(NOT ARG_OPTIMIZE)
    set(ARG_OPTIMIZE -O3)
  endif()
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/${name}.verilated)
  set(overrides ${ARG_PARAMETERS})
  list(TRANSFORM overrides PREPEND -G)
  add_custom_command(
    OUTPUT ${dir}/V${name}__all.cpp ${dir}/V${name}.h
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${dir}  # files of an earlier run would be joined too
    # Small --unroll-count keeps the loops over columns, which the compiler then vectorises.
    COMMAND ${VERILATOR_PROGRAM} --cc --trace-fst --trace-max-array 128 -O3 --unroll-count 4 --unroll-stmts 100
            --top-module ${ARG_TOP} ${overrides} --prefix V${name} --Mdir ${dir} ${ARG_ARGS} ${ARG_SOURCES}
    COMMAND ${CMAKE_COMMAND} -DDIR=${dir} -DPREFIX=V${name} -DROOT=${CMAKE_SOURCE_DIR}
            -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/JoinVerilated.cmake
    DEPENDS ${ARG_SOURCES} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/JoinVerilated.cmake
    COMMENT "Verilating ${name}"
    VERBATIM)
  add_library(tpu_${name} STATIC EXCLUDE_FROM_ALL ${dir}/V${name}__all.cpp)
  target_include_directories(tpu_${name} SYSTEM PUBLIC ${dir})
  # AVX2 code: 3 to 5 times as many cycles a second as baseline x86-64, same bits (integers only). Programs check the
  # host at run time before they step a unit (rtl/run/host.hpp).
  # The texts of assertions have no folder of this host: the same sources give the same bytes in every folder.
  target_compile_options(tpu_${name} PRIVATE ${ARG_OPTIMIZE} $<$<BOOL:${TPU_X86_64}>:-march=x86-64-v3> -g0 -w
                         -ffile-prefix-map=${CMAKE_BINARY_DIR}/=)
  if(TPU_X86_64)
    # Objects of link-time optimization have no names that could be changed.
    set_target_properties(tpu_${name} PROPERTIES INTERPROCEDURAL_OPTIMIZATION OFF)
    if(NOT CMAKE_OBJCOPY OR NOT CMAKE_NM)
      message(FATAL_ERROR "nm or objcopy is missing: install the package binutils")
    endif()
    add_custom_command(TARGET tpu_${name} POST_BUILD VERBATIM
      COMMAND ${CMAKE_COMMAND} -DLIBRARY=$<TARGET_FILE:tpu_${name}> -DNM=${CMAKE_NM} -DOBJCOPY=${CMAKE_OBJCOPY}
              -DSUFFIX=.x86_64_v3 -P ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/OwnInstructions.cmake)
  endif()
  target_link_libraries(tpu_${name} PUBLIC tpu_verilated)
  set_target_properties(tpu_${name} PROPERTIES UNITY_BUILD OFF)
  add_library(tpu::${name} ALIAS tpu_${name})
endfunction()
