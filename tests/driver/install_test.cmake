# Installs the driver to an empty prefix, builds examples/driver_api against it and runs it on the null board.
# cmake -DBUILD=... -DSOURCE=... -DWORK=... -P install_test.cmake
file(REMOVE_RECURSE ${WORK})
function(need)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "failed (${code}): ${ARGN}")
  endif()
endfunction()
need(${CMAKE_COMMAND} --install ${BUILD} --component driver --prefix ${WORK}/prefix)
need(${CMAKE_COMMAND} -G Ninja -S ${SOURCE}/examples/driver_api -B ${WORK}/build -DCMAKE_PREFIX_PATH=${WORK}/prefix
     -DCMAKE_BUILD_TYPE=Debug)
need(${CMAKE_COMMAND} --build ${WORK}/build)
need(${WORK}/build/driver_api null)
file(REMOVE_RECURSE ${WORK})
