# Manual pages of the commands, and completion for bash, zsh and fish: made from what --help prints whenever a command is
# built, and installed with it.
set(pages ${CMAKE_BINARY_DIR}/command_pages)
set(script ${CMAKE_CURRENT_LIST_DIR}/command_pages.py)
list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
set(exporter)
if(TARGET tpuboard-exporter)
  set(exporter $<TARGET_FILE:tpuboard-exporter>)
endif()
add_custom_command(
  OUTPUT ${pages}/stamp
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${pages}
  COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0 ${Python3_EXECUTABLE} ${script} --out ${pages}
          --version ${PROJECT_VERSION} "--emulator=${emulator}" $<TARGET_FILE:tpuc> $<TARGET_FILE:tpuboard> ${exporter}
  COMMAND ${CMAKE_COMMAND} -E touch ${pages}/stamp
  DEPENDS tpuc tpuboard ${exporter} ${script} ${CMAKE_SOURCE_DIR}/spec/sim/options.toml
          ${CMAKE_SOURCE_DIR}/spec/gen/options.py
  COMMENT "Making manual pages and shell completion"
  VERBATIM)
add_custom_target(tpu_command_pages ALL DEPENDS ${pages}/stamp)

install(DIRECTORY ${pages}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
install(DIRECTORY ${pages}/bash/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
install(DIRECTORY ${pages}/zsh/ DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tools)
install(DIRECTORY ${pages}/fish/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tools)
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tools)
