# Tests that run the built command line as a user does.
find_package(nlohmann_json 3.10 REQUIRED)

# What they start. In a cross build the program needs the emulator in front of it.
set(program $<TARGET_FILE:headwise_cli>)
if(CMAKE_CROSSCOMPILING)
    list(JOIN CMAKE_CROSSCOMPILING_EMULATOR " " emulator)
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/tests/run_headwise.sh
        CONTENT "#!/bin/sh\nexec ${emulator} ${program} \"$@\"\n"
        FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    set(program ${PROJECT_BINARY_DIR}/tests/run_headwise.sh)
endif()

foreach(name IN ITEMS cli_test cli_data_test cli_run_test)
    headwise_test(${name})
    add_dependencies(${name} headwise_cli)
    target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json)
    target_compile_definitions(${name} PRIVATE HEADWISE_PROGRAM="${program}")
endforeach()
