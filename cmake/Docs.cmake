# Target `docs`: HTML pages of the driver's public API, by Doxygen (Debian's 1.9.4), which nothing else of the build needs.
# A public name without a description is an error (test lint.api_docs).
find_program(DOXYGEN_PROGRAM doxygen)
configure_file(${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in ${CMAKE_BINARY_DIR}/Doxyfile @ONLY)
if(DOXYGEN_PROGRAM)
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/docs)
  add_custom_target(docs
    COMMAND ${DOXYGEN_PROGRAM} ${CMAKE_BINARY_DIR}/Doxyfile
    COMMENT "Pages of the public API: ${CMAKE_BINARY_DIR}/docs/html/index.html"
    VERBATIM)
else()
  add_custom_target(docs
    COMMAND ${CMAKE_COMMAND} -E echo "docs: doxygen is not installed: apt-get install doxygen, then configure again"
    COMMAND ${CMAKE_COMMAND} -E false
    VERBATIM)
endif()
