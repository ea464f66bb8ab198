# Joins the C++ files that Verilator wrote to DIR into one file that includes them: their names are not known when the
# build is configured. Paths of sources in texts become relative to the root of the tree. Called by tpu_verilate() with
# DIR, PREFIX and ROOT.
file(GLOB sources ${DIR}/${PREFIX}*.cpp)
list(FILTER sources EXCLUDE REGEX "__all\\.cpp$")
list(SORT sources)
set(text "// All of ${PREFIX}.\n")
foreach(source ${sources})
  get_filename_component(file ${source} NAME)
  file(READ ${source} code)
  string(REPLACE "\"${ROOT}/" "\"" relative "${code}")
  if(NOT relative STREQUAL code)
    file(WRITE ${source} "${relative}")
  endif()
  string(APPEND text "#include \"${file}\"\n")
endforeach()
file(WRITE ${DIR}/${PREFIX}__all.cpp "${text}")
