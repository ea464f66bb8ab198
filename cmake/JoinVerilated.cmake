# Joins the C++ files that Verilator wrote to DIR into one file that includes them: their names are not known when the
# build is configured. Called by tpu_verilate() with DIR and PREFIX.
file(GLOB sources ${DIR}/${PREFIX}*.cpp)
list(FILTER sources EXCLUDE REGEX "__all\\.cpp$")
list(SORT sources)
set(text "// All of ${PREFIX}.\n")
foreach(source ${sources})
  get_filename_component(file ${source} NAME)
  string(APPEND text "#include \"${file}\"\n")
endforeach()
file(WRITE ${DIR}/${PREFIX}__all.cpp "${text}")
