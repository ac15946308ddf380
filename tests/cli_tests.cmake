# Tests that run the built program as a user does.
find_package(nlohmann_json 3.10 REQUIRED)
foreach(name IN ITEMS cli_test cli_data_test)
    headwise_test(${name})
    add_dependencies(${name} headwise_cli)
    target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json)
    target_compile_definitions(${name} PRIVATE HEADWISE_PROGRAM="$<TARGET_FILE:headwise_cli>")
endforeach()
