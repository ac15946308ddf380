# Shared by the scripts beside it and by .ci/run; to be sourced, with the repository's root as working directory.

say() { printf '\n== %s\n' "$*"; }

die() {
    printf '%s\n' "$*" >&2
    exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# has_header NAME: whether the C++ compiler finds <NAME>.
has_header() { printf '#include <%s>\n' "$1" | c++ -E -x c++ - >/dev/null 2>&1; }

# install_packages PACKAGE...: with apt-get, as root or by sudo; elsewhere says what to install and ends.
install_packages() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if have sudo && sudo -n true 2>/dev/null; then as_root=(sudo -n); else as_root=(false); fi
    fi
    if ! have apt-get || [ "${as_root[*]}" = false ]; then
        die "Missing on this machine: $*
These are the names of Debian's packages; install them or their likes, then run this script again:
    apt-get install $*"
    fi
    say "installing $*"
    "${as_root[@]}" apt-get update -qq || true # an old list may still do
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" \
        </dev/null >/dev/null || die "apt-get could not install: $*"
}

# Everything that a build with tests and benchmarks needs (docs/dependencies.md). Installs only what is missing.
need_build_tools() {
    local missing=()
    have cmake || missing+=(cmake)
    have ninja || missing+=(ninja-build)
    have c++ || missing+=(g++)
    have python3 || missing+=(python3)
    # Without a compiler no header can be looked for: the package manager knows what is there.
    has_header nlohmann/json.hpp || missing+=(nlohmann-json3-dev)
    has_header CLI/CLI.hpp || missing+=(libcli11-dev)
    has_header gtest/gtest.h || missing+=(libgtest-dev)
    has_header benchmark/benchmark.h || missing+=(libbenchmark-dev)
    if [ ${#missing[@]} -gt 0 ]; then install_packages "${missing[@]}"; fi
    local gcc
    gcc=$(c++ -dumpfullversion 2>/dev/null || echo 99)
    if c++ --version | head -1 | grep -qv clang && [ "${gcc%%.*}" -lt 12 ]; then
        die "c++ is GCC $gcc; headwise needs GCC 12 or newer, or Clang 16 or newer: CXX=... names another compiler"
    fi
}

# build_release TARGET...: configures build/release and builds the targets (default: all). The preset makes warnings
# errors; that is for our own CI (HEADWISE_WERROR=1), not for somebody's newer compiler.
build_release() {
    local launcher=() flags="" targets=()
    have ccache && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    [ "${HEADWISE_WERROR:-0}" = 1 ] && flags=-Werror
    [ $# -gt 0 ] && targets=(--target "$@")
    cmake --preset release "-DCMAKE_CXX_FLAGS=$flags" "${launcher[@]}" >/dev/null
    cmake --build build/release "${targets[@]}" -- --quiet
}
