# The Debian package (docs/install.md): cpack -G DEB --config build/release/CPackConfig.cmake -B dist
# Commands, plugin, C interface and examples in one package; the C++ interface is installed by `cmake --install`.
set(CPACK_PACKAGE_NAME tpuboard)
set(CPACK_PACKAGE_VENDOR tpuboard)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "virtual Cloud TPU v3-8 board")
set(CPACK_PACKAGE_DESCRIPTION
"Simulates a Cloud TPU v3-8 board: JAX, PyTorch/XLA and TensorFlow programs
see eight TPU devices and train on them. A StableHLO compiler, a host driver,
firmware, and models of the hardware in SystemC and SystemVerilog.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_ALL tools pjrt share)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "tpuboard maintainers <maintainers@tpuboard.invalid>")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS python3)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/DebianFiles.cmake)
set(CPACK_TPUBOARD_NOTICES ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/sim_scripts/notices.py --build ${CMAKE_BINARY_DIR}
    --compiled-in)
include(CPack)
