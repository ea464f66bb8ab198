# Run by CPack on the tree that becomes the Debian package: the plugin goes to a folder of its own, since it is no library
# that programs link by its name, and the package gets the files that Debian's policy asks for.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
file(GLOB roots ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*/usr)
foreach(root ${roots})
  file(MAKE_DIRECTORY ${root}/lib/tpuboard ${root}/share/doc/tpuboard)
  file(GLOB libraries ${root}/lib/*.so ${root}/lib/tpuboard_server)
  foreach(library ${libraries})
    cmake_path(GET library FILENAME name)
    file(RENAME ${library} ${root}/lib/tpuboard/${name})
  endforeach()
  # TensorFlow is in no package of Debian.
  file(GLOB lowerings ${root}/lib/tpuboard/libtpuboard_tf-*.so)
  if(lowerings)
    file(REMOVE ${lowerings})
  endif()
  file(GLOB pages ${root}/share/man/man1/*.1)
  if(pages)
    execute_process(COMMAND gzip -9nf ${pages} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  # Where Debian's zsh looks.
  if(EXISTS ${root}/share/zsh/site-functions)
    file(RENAME ${root}/share/zsh/site-functions ${root}/share/zsh/vendor-completions)
  endif()
  file(REMOVE ${root}/share/doc/tpuboard/LICENSE)
  execute_process(COMMAND ${CPACK_TPUBOARD_NOTICES} OUTPUT_VARIABLE notices COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${root}/share/doc/tpuboard/copyright
"tpuboard: Copyright (C) the authors of tpuboard
License: Apache-2.0. On Debian systems its text is /usr/share/common-licenses/Apache-2.0.

${notices}")
  file(WRITE ${root}/share/doc/tpuboard/changelog
"tpuboard (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Package of the release ${CPACK_PACKAGE_VERSION}.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  Thu, 01 Jan 1970 00:00:00 +0000
")
  execute_process(COMMAND gzip -9nf ${root}/share/doc/tpuboard/changelog COMMAND_ERROR_IS_FATAL ANY)
  # The firmware of the simulated control harts is data on this host; CPack calls ldconfig for any library.
  set(firmware "[usr/share/tpuboard/firmware/firmware.elf]")
  file(WRITE ${root}/share/lintian/overrides/tpuboard
"tpuboard: arch-dependent-file-in-usr-share ${firmware}
tpuboard: binary-from-other-architecture ${firmware}
tpuboard: statically-linked-binary ${firmware}
tpuboard: unstripped-binary-or-object ${firmware}
tpuboard: maintscript-calls-ldconfig
tpuboard: groff-message *cannot adjust line*
")
  execute_process(COMMAND chmod -R u=rwX,go=rX ${root} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
