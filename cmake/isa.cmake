# The list of instruction sets, best first: the only place that names them with their flags.
# An entry `name|vec header|lanes of vec_portable (or 0)|flags` makes an OBJECT library of all src/kernels/*.isa.cpp,
# and a line in the generated isa_list.inc that dispatch.cpp expands. What a CPU must have for each name is in
# src/kernels/cpu_x86.cpp or cpu_other.cpp.
set(avx2_flags "-mavx2 -mfma -mf16c")
set(avx512_flags "${avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 calls the deliberately undefined registers of its own AVX-512 header uninitialised (GCC bug 105593).
    string(APPEND avx512_flags " -Wno-uninitialized -Wno-maybe-uninitialized")
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(HEADWISE_ISAS
        "avx512_bf16|vec_avx512.h|0|${avx512_flags} -mavx512bf16 -mavx512vnni"
        "avx512|vec_avx512.h|0|${avx512_flags}"
        "avx2|vec_avx2.h|0|${avx2_flags}"
        "scalar|vec_portable.h|4|")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    set(HEADWISE_ISAS
        "neon|vec_neon.h|0|"
        "scalar|vec_portable.h|4|")
else()
    set(HEADWISE_ISAS "scalar|vec_portable.h|4|")
endif()
# Only for tests: the 16-lane kernels on a portable vector.
set(HEADWISE_TEST_ISAS "portable16|vec_portable.h|16|")

set(HEADWISE_ISA_SOURCES
    ${PROJECT_SOURCE_DIR}/src/kernels/attend.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/cache.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/linear.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/measure.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/rows.isa.cpp
    ${PROJECT_SOURCE_DIR}/src/kernels/table.isa.cpp)

# headwise_add_isa(ENTRY PREFIX source...): the object library PREFIX_<name> of the sources, compiled for this entry.
function(headwise_add_isa entry prefix)
    string(REPLACE "|" ";" fields "${entry}")
    list(GET fields 0 name)
    list(GET fields 1 header)
    list(GET fields 2 lanes)
    list(GET fields 3 flags)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    set(target ${prefix}_${name})
    add_library(${target} OBJECT ${ARGN})
    target_compile_definitions(${target} PRIVATE
        HEADWISE_ISA=${name} HEADWISE_VEC="kernels/${header}" HEADWISE_PORTABLE_LANES=${lanes})
    target_link_libraries(${target} PRIVATE headwise_flags)
    target_compile_options(${target} PRIVATE ${flags} -fno-exceptions -fno-rtti)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    set_target_properties(${target} PROPERTIES
        POSITION_INDEPENDENT_CODE ON INTERPROCEDURAL_OPTIMIZATION OFF)
endfunction()

# headwise_add_isas(ENTRIES OUT_NAMES [PREFIX source...]): all entries of the list named ENTRIES, by default of the
# kernels (headwise_isa_<name>); their names go to the list OUT_NAMES.
function(headwise_add_isas entries out_names)
    set(prefix_and_sources ${ARGN})
    if(NOT prefix_and_sources)
        set(prefix_and_sources headwise_isa ${HEADWISE_ISA_SOURCES})
    endif()
    set(names)
    foreach(entry IN LISTS ${entries})
        string(REGEX REPLACE "\\|.*" "" name "${entry}")
        headwise_add_isa("${entry}" ${prefix_and_sources})
        list(APPEND names ${name})
    endforeach()
    set(${out_names} ${names} PARENT_SCOPE)
endfunction()
