# Third-party libraries, all from Debian 12 packages, each as one interface target with SYSTEM headers.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Protobuf REQUIRED)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
if(TPU_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# SystemC of Debian is built as C++17; C++20 code links with it when the header is told so (ADR 1).
find_package(SystemCLanguage QUIET)
add_library(tpu_systemc INTERFACE)
find_path(SYSTEMC_INCLUDE_DIR systemc REQUIRED)
find_library(SYSTEMC_LIBRARY systemc REQUIRED)
target_include_directories(tpu_systemc SYSTEM INTERFACE ${SYSTEMC_INCLUDE_DIR})
target_compile_definitions(tpu_systemc INTERFACE SC_CPLUSPLUS=201703L SC_INCLUDE_DYNAMIC_PROCESSES)
target_link_libraries(tpu_systemc INTERFACE ${SYSTEMC_LIBRARY} Threads::Threads)

# Highway (SIMD with run-time dispatch).
find_path(HWY_INCLUDE_DIR hwy/highway.h REQUIRED)
find_library(HWY_LIBRARY hwy REQUIRED)
add_library(tpu_hwy INTERFACE)
target_include_directories(tpu_hwy SYSTEM INTERFACE ${HWY_INCLUDE_DIR})
target_link_libraries(tpu_hwy INTERFACE ${HWY_LIBRARY})

# toml++ (its parser from the library: in the header it costs each user 3 s, sanitized ones 13 s) and FlatBuffers.
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
find_library(TOMLPLUSPLUS_LIBRARY tomlplusplus REQUIRED)
add_library(tpu_tomlplusplus INTERFACE)
target_include_directories(tpu_tomlplusplus SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE_DIR})
target_compile_definitions(tpu_tomlplusplus INTERFACE TOML_HEADER_ONLY=0)
target_link_libraries(tpu_tomlplusplus INTERFACE ${TOMLPLUSPLUS_LIBRARY})
find_program(FLATC_PROGRAM flatc REQUIRED)
find_path(FLATBUFFERS_INCLUDE_DIR flatbuffers/flatbuffers.h REQUIRED)
find_library(FLATBUFFERS_LIBRARY flatbuffers REQUIRED)
add_library(tpu_flatbuffers INTERFACE)
target_include_directories(tpu_flatbuffers SYSTEM INTERFACE ${FLATBUFFERS_INCLUDE_DIR})
target_link_libraries(tpu_flatbuffers INTERFACE ${FLATBUFFERS_LIBRARY})

# libedit: history and completion of what somebody types.
find_path(EDIT_INCLUDE_DIR editline/readline.h REQUIRED)
find_library(EDIT_LIBRARY edit REQUIRED)
add_library(tpu_edit INTERFACE)
target_include_directories(tpu_edit SYSTEM INTERFACE ${EDIT_INCLUDE_DIR})
target_link_libraries(tpu_edit INTERFACE ${EDIT_LIBRARY})

# libzip, for .npz. Its own CMake package of Debian asks for programs that other packages have.
find_path(ZIP_INCLUDE_DIR zip.h REQUIRED)
find_library(ZIP_LIBRARY zip REQUIRED)
add_library(tpu_zip INTERFACE)
target_include_directories(tpu_zip SYSTEM INTERFACE ${ZIP_INCLUDE_DIR})
target_link_libraries(tpu_zip INTERFACE ${ZIP_LIBRARY})
