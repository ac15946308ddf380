// headwise_conformance: judges headwise by conformance vectors.
#include <iostream>

#include "conformance/runner.h"

int main(int argc, char** argv) {
    return headwise::conformance::run_command_line(argc, argv, std::cout, std::cerr);
}
