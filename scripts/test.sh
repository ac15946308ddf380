#!/usr/bin/env bash
# Builds the release and runs every test. Installs what is missing where it may (Debian, root or sudo).
#   scripts/test.sh [ctest arguments]      e.g. scripts/test.sh -R attend
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

need_build_tools
say "build"
build_release
say "test"
ctest --test-dir build/release --output-on-failure --parallel "$(nproc)" "$@"
