# Renames the functions of a library that other units may define, too, such as inline functions of headers and members
# of std::string: the linker takes one definition of each name for the whole program, which would be one that older hosts
# cannot run. Data keep their names: there is one of each. Called by tpu_verilate() with LIBRARY, NM, OBJCOPY and SUFFIX.
execute_process(COMMAND ${NM} --defined-only ${LIBRARY} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
# n: the name of the group that two constructors or destructors have in common.
string(REGEX MATCHALL "[^\n]* [Wn] _Z[^\n]+" functions "${symbols}")
list(TRANSFORM functions REPLACE ".* [Wn] " "")
list(FILTER functions EXCLUDE REGEX "\\${SUFFIX}$")
list(REMOVE_DUPLICATES functions)
list(TRANSFORM functions REPLACE "(.+)" "\\1 \\1${SUFFIX}\n")
list(JOIN functions "" text)
file(WRITE ${LIBRARY}.names "${text}")
execute_process(COMMAND ${OBJCOPY} --enable-deterministic-archives --redefine-syms=${LIBRARY}.names ${LIBRARY}
                COMMAND_ERROR_IS_FATAL ANY)
