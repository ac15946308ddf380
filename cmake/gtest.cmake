# GTest::gtest_main: the installed GoogleTest, or its sources where that is missing or for another architecture.
set(HEADWISE_GTEST_SOURCE /usr/src/googletest CACHE PATH "GoogleTest's sources, for cross builds")
if(NOT CMAKE_CROSSCOMPILING)
    find_package(GTest QUIET)
endif()
if(NOT TARGET GTest::gtest_main)
    set(BUILD_GMOCK OFF CACHE BOOL "" FORCE)
    set(INSTALL_GTEST OFF CACHE BOOL "" FORCE)
    add_subdirectory(${HEADWISE_GTEST_SOURCE} ${PROJECT_BINARY_DIR}/googletest EXCLUDE_FROM_ALL SYSTEM)
    # Its warnings are not ours to mend.
    foreach(target IN ITEMS gtest gtest_main)
        target_compile_options(${target} PRIVATE -w)
    endforeach()
endif()
