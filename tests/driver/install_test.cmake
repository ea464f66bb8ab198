# Installs driver and commands to an empty prefix, compares pages and completions with --help, builds programs that know
# nothing but the CMake package or the pkg-config file, and runs them: examples/driver_api and tests/driver/installed on
# the null board, and, where the build has one, on the simulated board.
# cmake -DBUILD=... -DSOURCE=... -DWORK=... -DSIM=ON|OFF -DTPUC=... -DPYTHON=... -DCXX=... -P install_test.cmake
file(REMOVE_RECURSE ${WORK})
function(need)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGN}")
  endif()
endfunction()
need(${CMAKE_COMMAND} --install ${BUILD} --component driver --prefix ${WORK}/prefix)
need(${CMAKE_COMMAND} --install ${BUILD} --component tools --prefix ${WORK}/prefix)
need(${PYTHON} ${SOURCE}/tests/cli/command_pages_test.py ${WORK}/prefix)
foreach(folder examples/driver_api tests/driver/installed)
  get_filename_component(name ${folder} NAME)
  need(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/${folder} -B ${WORK}/${name} -DCMAKE_PREFIX_PATH=${WORK}/prefix
       -DCMAKE_BUILD_TYPE=Debug)
  need(${CMAKE_COMMAND} --build ${WORK}/${name})
endforeach()
# The same by pkg-config, without CMake.
file(GLOB_RECURSE pc ${WORK}/prefix/*/tpuboard.pc)
cmake_path(GET pc PARENT_PATH pc_folder)
cmake_path(GET pc_folder PARENT_PATH libraries)
find_program(pkg_config pkg-config REQUIRED)
execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_folder} ${pkg_config} --cflags --libs tpuboard
                OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND ${flags})
need(${CXX} ${SOURCE}/examples/driver_api/main.cpp -o ${WORK}/driver_api/by_pkg_config ${flags}
     -Wl,-rpath,${libraries})
need(${TPUC} --asm ${SOURCE}/tests/driver/installed/copy.s -o ${WORK}/copy.tpuexe)
set(transports null)
if(SIM)
  list(APPEND transports sim)
endif()
foreach(transport ${transports})
  need(${WORK}/driver_api/driver_api ${transport} ${WORK}/copy.tpuexe)
  need(${WORK}/installed/installed_user ${transport} ${WORK}/copy.tpuexe)
  need(${WORK}/driver_api/by_pkg_config ${transport} ${WORK}/copy.tpuexe)
endforeach()
file(REMOVE_RECURSE ${WORK})
