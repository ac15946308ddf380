# headwise as others use it: installed (static, shared) and as a subproject.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
foreach(kind IN ITEMS static shared subproject)
    add_test(NAME consumer_${kind} COMMAND ${CMAKE_COMMAND}
        -DKIND=${kind} -DSOURCE=${PROJECT_SOURCE_DIR} -DBUILD=${PROJECT_BINARY_DIR}
        -DWORK=${CMAKE_CURRENT_BINARY_DIR}/consumer_${kind} -DCXX=${CMAKE_CXX_COMPILER}
        -DLAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER} -DGENERATOR=${CMAKE_GENERATOR} -DPYTHON=${Python3_EXECUTABLE}
        -P ${CMAKE_CURRENT_LIST_DIR}/consumer_test.cmake)
    # Builds of their own, which use all cores.
    set_tests_properties(consumer_${kind} PROPERTIES LABELS consumer TIMEOUT 900 RUN_SERIAL ON)
endforeach()
