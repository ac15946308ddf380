# The list of instruction sets, best first: the only place that names them with their flags.
# An entry `name|vec header|lanes of vec_portable (or 0)|flags` makes an OBJECT library of all src/kernels/*.isa.cpp,
# and a line in the generated isa_list.inc that dispatch.cpp expands.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(HEADWISE_ISAS
        "avx2|vec_avx2.h|0|-mavx2 -mfma -mf16c"
        "scalar|vec_portable.h|4|")
else()
    set(HEADWISE_ISAS "scalar|vec_portable.h|4|")
endif()
# Only for tests: the 16-lane kernels on a portable vector.
set(HEADWISE_TEST_ISAS "portable16|vec_portable.h|16|")

set(HEADWISE_ISA_SOURCES
    ${PROJECT_SOURCE_DIR}/src/kernels/attend.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/linear.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/rows.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/table.isa.cpp)

# Makes the object library headwise_isa_<name>.
function(headwise_add_isa entry)
    string(REPLACE "|" ";" fields "${entry}")
    list(GET fields 0 name)
    list(GET fields 1 header)
    list(GET fields 2 lanes)
    list(GET fields 3 flags)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    add_library(headwise_isa_${name} OBJECT ${HEADWISE_ISA_SOURCES})
    target_compile_definitions(headwise_isa_${name} PRIVATE
        HEADWISE_ISA=${name} HEADWISE_VEC="kernels/${header}" HEADWISE_PORTABLE_LANES=${lanes})
    target_compile_options(headwise_isa_${name} PRIVATE ${flags} -fno-exceptions -fno-rtti)
    target_link_libraries(headwise_isa_${name} PRIVATE headwise_flags)
    target_include_directories(headwise_isa_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    set_target_properties(headwise_isa_${name} PROPERTIES
        POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF)
endfunction()

# Makes all entries of the list `entries`; names go to the list `out_names`.
function(headwise_add_isas entries out_names)
    set(names)
    foreach(entry IN LISTS ${entries})
        string(REGEX REPLACE "\\|.*" "" name "${entry}")
        headwise_add_isa("${entry}")
        list(APPEND names ${name})
    endforeach()
    set(${out_names} ${names} PARENT_SCOPE)
endfunction()
