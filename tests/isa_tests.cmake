# Tests of the room `kernels` that are compiled once per ISA or look at the objects of an ISA.

# The operations of kernels/vec.h.
headwise_add_isas(HEADWISE_ISAS isas vec_test_isa ${CMAKE_CURRENT_LIST_DIR}/vec_test.isa.cpp)
headwise_add_isas(HEADWISE_TEST_ISAS portable_isas vec_test_isa ${CMAKE_CURRENT_LIST_DIR}/vec_test.isa.cpp)
foreach(name IN ITEMS vec_test vec_memory_test)
    headwise_test(${name})
    target_include_directories(${name} PRIVATE ${PROJECT_BINARY_DIR}/generated)
    foreach(isa IN LISTS isas portable_isas)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:vec_test_isa_${isa}>)
    endforeach()
endforeach()

# What an ISA object may define. A sanitizer adds constructors of its own.
if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    foreach(isa IN LISTS isas portable_isas)
        add_test(NAME isa_exports_${isa} COMMAND_EXPAND_LISTS
            COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/tree/isa_exports.sh ${CMAKE_NM} ${isa}
                $<TARGET_OBJECTS:headwise_isa_${isa}> $<TARGET_OBJECTS:vec_test_isa_${isa}>)
        set_tests_properties(isa_exports_${isa} PROPERTIES LABELS tree)
    endforeach()

    # The rules bite: every one finds its line in weak_symbol.cpp, and a strange namespace in the objects of `scalar`.
    add_library(weak_symbol OBJECT ${CMAKE_CURRENT_LIST_DIR}/tree/weak_symbol.cpp)
    foreach(rule IN ITEMS "weak_symbol:weak or unique symbol" "weak_symbol:has a constructor"
                          "headwise_isa_scalar:defines a symbol outside its namespace")
        string(REGEX MATCH "^[^:]*" target "${rule}")
        string(REGEX REPLACE "^[^:]*:" "" fault "${rule}")
        string(MAKE_C_IDENTIFIER "isa_exports_finds_${fault}" test)
        add_test(NAME ${test} COMMAND_EXPAND_LISTS
            COMMAND sh ${CMAKE_CURRENT_LIST_DIR}/tree/isa_exports.sh ${CMAKE_NM} weak_symbol
                $<TARGET_OBJECTS:${target}>)
        set_tests_properties(${test} PROPERTIES LABELS tree PASS_REGULAR_EXPRESSION "${fault}")
    endforeach()
endif()

# qemu-user fails assertions of its own where a program with threads forks.
if(CMAKE_CROSSCOMPILING)
    set_tests_properties(fork_test unload_test PROPERTIES DISABLED ON)
endif()
