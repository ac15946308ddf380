#!/usr/bin/env python3
"""The rules of the tree, as a program. Needs nothing but Python 3.

    check_tree.py text    [ROOT]                     arrows, sizes, names, macros, intrinsics, paths
    check_tree.py headers [ROOT] --compiler CXX ...  every header compiles alone, without a warning
    check_tree.py symbols LIBRARY ...                what the release library may call and export

Prints one line per broken rule and exits 1 if there is one. tree_test.py plants violations to prove that each rule bites.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

# ---- the arrows: a room may include itself and what stands in its list, nothing else -----------------------------

ARROWS = {
    "core": [],
    "kernels": ["core"],
    "project": ["kernels", "core"],
    "heads": ["kernels", "core"],
    "attend": ["heads", "kernels", "core"],
    "mha": ["project", "heads", "attend", "kernels", "core"],  # it holds the table that its weights are packed for
    "weights": ["mha", "heads", "core"],
    "adapters": ["mha", "heads", "attend", "core"],
}

# The room that each public header belongs to. Public headers follow the arrows of their room.
PUBLIC_HEADERS = {
    "export.h": "core",
    "error.h": "core",
    "tensor.h": "core",
    "cpu.h": "core",
    "heads.h": "heads",
    "kv_cache.h": "heads",
    "mask.h": "attend",
    "attend.h": "attend",
    "scores.h": "attend",
    "mha_config.h": "mha",
    "mha.h": "mha",
    "torch_mha.h": "adapters",
    "onnx.h": "adapters",
    "trace.h": "mha",
    "weights.h": "weights",
    "headwise.h": "umbrella",
}

# Folders outside src/: which internal headers they may include besides <headwise/...> and their own. None: any.
# Two benches time a piece that no public call runs alone: the packed linear layer and the thread pool.
OUTSIDE = {
    "cli": [],
    "bench": ["kernels/dispatch.h", "project/packed_linear.h", "core/parallel.h"],
    "tests": None,
    "fuzz": None,
}

# Files that the build writes.
GENERATED = {"isa_list.inc", "build_info.inc"}

# Libraries of others: where they may be included, and in how many files (their headers cost seconds per file).
THIRD_PARTY = {
    "nlohmann/": {"weights": 1, "cli": 1, "tests": 99},
    "CLI/": {"cli": 1},
    "benchmark/": {"bench": 99},
    "gtest/": {"tests": 99},
    "gmock/": {"tests": 99},
}

MAX_LINES = 400
MAX_PUBLIC_LINES = 150
MAX_MACROS = 5

CODE = (".h", ".cpp", ".inc")
SIZED = CODE + (".py", ".sh", ".cmake", ".txt")
DATA = ("tests/vectors/", "samples/", "tests/data/")
SKIPPED = {".git", ".cache", "__pycache__"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)", re.M)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
FILE_NAME = re.compile(r"[a-z][a-z0-9_]*(\.isa)?\.(h|cpp|inc)")
PRIVATE_PATH = re.compile(r"(?<![\w.$}])/(?:work|home|root|Users)/\w|\.\.(?:/)shared\b")
INTRINSIC = re.compile(
    r"\b_mm\d*_\w+|\b__m(?:64|128|256|512)\w*\b|\b_(?:xgetbv|mm_|t(?:ile)_)\w*|\b__builtin_(?:ia32|neon|aarch64)_\w+"
    r"|\bv(?:ld|st)[1-4]q?_\w+|\bv[a-z]+q_(?:lane_|n_)?[fsup]\d+\w*|\b(?:float|u?int|bfloat|poly)\d+x\d+(?:x\d)?_t\b"
    r"|\b\w*(?:intrin|arm_neon|arm_sve|arm_bf16|arm_fp16)\.h\b")

# Instructions that set the floating-point environment. The one header restores what the caller had.
FLOAT_ENVIRONMENT = re.compile(r"\b(?:v?ldmxcsr|fldcw|fldenv|msr\s+fpcr)\b")
FLOAT_ENVIRONMENT_HOME = "src/core/arch.h"


def relative(path, root):
    return path.relative_to(root).as_posix()


def files(root):
    """All files of the tree, without build folders."""
    for folder, names, entries in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED and not (folder == str(root) and n.startswith("build")))
        for entry in sorted(set(entries) - SKIPPED):
            yield pathlib.Path(folder) / entry


def code_files(root):
    for path in files(root):
        if path.suffix in CODE and not relative(path, root).startswith(DATA):
            yield path


def room_of(name):
    """'src/heads/rope.h' -> 'heads', 'cli/run.cpp' -> 'cli', 'include/headwise/mha.h' -> 'mha' (or None)."""
    parts = name.split("/")
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    if parts[:2] == ["include", "headwise"]:
        return PUBLIC_HEADERS.get(parts[-1])
    return parts[0]


# ---- text rules --------------------------------------------------------------------------------------------------


def may_include(room, target, name):
    """Whether a file of `room` may include an internal or public header that belongs to room `target`."""
    if room in ARROWS:
        return target == room or target in ARROWS[room]
    return room == "umbrella" or name.startswith("headwise/") or OUTSIDE[room] is None or name in OUTSIDE[room]


def third_party(name):
    return next((prefix for prefix in THIRD_PARTY if name.startswith(prefix)), None)


def check_include(path, root, quote, name):
    """The fault of one #include, or None."""
    here = relative(path, root)
    room = room_of(here)
    public = here.startswith("include/")
    if room is None or (room not in ARROWS and room not in OUTSIDE and room != "umbrella"):
        return f"'{here}' is in no room: add it to the tables of tests/tree/check_tree.py"
    if quote == '"':
        if public:
            return f'public header includes "{name}": public headers use <headwise/...> and the standard library'
        if (root / "src" / name).exists():
            target = name.split("/")[0]
            return None if may_include(room, target, name) else f"arrow {room} -> {target} is not allowed (\"{name}\")"
        if room in OUTSIDE or name in GENERATED:
            return None
        return f'"{name}" does not exist in src/: inside src/ write "room/file.h"'
    if name.startswith("headwise/"):
        target = PUBLIC_HEADERS.get(name.split("/", 1)[1])
        if target is None:
            return f"<{name}> is in no room: add it to PUBLIC_HEADERS"
        return None if may_include(room, target, name) else f"arrow {room} -> {target} is not allowed (<{name}>)"
    owner = third_party(name)
    if owner and room not in THIRD_PARTY[owner]:
        return f"<{name}> may be included only by: {', '.join(THIRD_PARTY[owner])}"
    if public and (owner or "." in name or "/" in name):
        return f"public header includes <{name}>: only the C++ standard library is allowed"
    return None


def check_arrows(root):
    users = {}
    for path in code_files(root):
        here = relative(path, root)
        for quote, name in INCLUDE.findall(path.read_text()):
            fault = check_include(path, root, quote, name)
            if fault:
                yield f"{here}: {fault}"
            if third_party(name):
                users.setdefault((third_party(name), room_of(here)), set()).add(here)
    for (owner, room), paths in sorted(users.items()):
        limit = THIRD_PARTY[owner].get(room, 0)
        if room in THIRD_PARTY[owner] and len(paths) > limit:
            yield f"<{owner}...> is included by {len(paths)} files of {room}, at most {limit}: {', '.join(sorted(paths))}"


def kernel_closure(root):
    """*.isa.cpp and every header that they reach: the files that are compiled once per ISA."""
    reached, todo = set(), sorted((root / "src" / "kernels").glob("*.isa.cpp"))
    while todo:
        path = todo.pop()
        if path in reached:
            continue
        reached.add(path)
        names = [name for quote, name in INCLUDE.findall(path.read_text()) if quote == '"']
        todo += [root / "src" / name for name in names if (root / "src" / name).exists()]
    return reached | set((root / "src" / "kernels").glob("vec_*.h"))


def check_kernels(root):
    """A C++ header in a kernel would put weak symbols, compiled for one ISA, where the whole program can link them."""
    for path in sorted(kernel_closure(root)):
        for quote, name in INCLUDE.findall(path.read_text()):
            if quote == '"' and not name.startswith("kernels/"):
                yield f"{relative(path, root)}: compiled per ISA, may include kernels/ only, not \"{name}\""
            if quote == "<" and not name.endswith(".h"):
                yield f"{relative(path, root)}: compiled per ISA, may include C headers only, not <{name}>"


def check_sizes(root):
    for path in files(root):
        here = relative(path, root)
        if path.suffix not in SIZED or here.startswith(DATA):
            continue
        limit = MAX_PUBLIC_LINES if here.startswith("include/") else MAX_LINES
        lines = path.read_text().count("\n")
        if lines > limit:
            yield f"{here}: {lines} lines, at most {limit}"


def check_code(root):
    """File names, #pragma once, macros, intrinsics, the floating-point environment."""
    macros = set()
    for path in code_files(root):
        here, text = relative(path, root), path.read_text()
        if not FILE_NAME.fullmatch(path.name):
            yield f"{here}: file names are snake_case"
        if path.suffix == ".h" and "#pragma once" not in text:
            yield f"{here}: a header starts with #pragma once"
        if not here.startswith("tests/"):
            for macro in DEFINE.findall(text):
                macros.add(macro)
                if not macro.startswith("HEADWISE_"):
                    yield f"{here}: macro {macro} must be called HEADWISE_..., or better be no macro"
        if not re.fullmatch(r"src/kernels/vec_\w+\.h", here):
            for found in sorted(set(INTRINSIC.findall(COMMENT.sub(" ", text)))):
                yield f"{here}: intrinsic {found} outside src/kernels/vec_*.h"
        if here != FLOAT_ENVIRONMENT_HOME and not here.startswith("tests/"):
            for found in sorted(set(FLOAT_ENVIRONMENT.findall(COMMENT.sub(" ", text)))):
                yield f"{here}: {found} sets the floating-point environment outside {FLOAT_ENVIRONMENT_HOME}"
    if len(macros) > MAX_MACROS:
        yield f"{len(macros)} macros are defined, at most {MAX_MACROS}: {', '.join(sorted(macros))}"


def check_paths(root):
    """Names of somebody's machine."""
    for path in files(root):
        try:
            text = path.read_bytes().decode()
        except UnicodeDecodeError:
            continue  # binary data
        for number, line in enumerate(text.splitlines(), 1):
            found = PRIVATE_PATH.search(line)
            if found:
                yield f"{relative(path, root)}:{number}: path '{found.group()}...' exists on one machine only"


def check_text(root):
    for rule in (check_arrows, check_kernels, check_sizes, check_code, check_paths):
        yield from rule(root)


# ---- headers compile alone -----------------------------------------------------------------------------------------

PLAIN_ISA = "scalar|vec_portable.h|4|"


def isa_arguments(entry):
    """Compiler arguments of an entry of cmake/isa.cmake, "name|vec header|lanes|flags"."""
    name, header, lanes, flags = entry.split("|")
    return [f"-DHEADWISE_ISA={name}", f'-DHEADWISE_VEC="kernels/{header}"', f"-DHEADWISE_PORTABLE_LANES={lanes}",
            *flags.split()]


def header_jobs(root, compilers, isas):
    """(header, compiler, arguments): public ones with every compiler, internal ones with the first, once per ISA."""
    include, src = root / "include", root / "src"
    for path in sorted((include / "headwise").glob("*.h")):
        for compiler in compilers:
            yield path, compiler, [f"-I{include}"]
    closure = kernel_closure(root)
    for path in sorted(src.glob("*/*.h")):
        common = [f"-I{include}", f"-I{src}"]
        if path.name.startswith("vec_"):
            continue  # a part of vec.h, which is compiled once per ISA
        per_isa = path in closure and "HEADWISE_ISA" in path.read_text()
        for flags in map(isa_arguments, isas) if per_isa else [[]]:
            yield path, compilers[0], common + flags


def compile_alone(root, job):
    path, compiler, arguments = job
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror",
               *arguments, "-x", "c++", "-"]
    done = subprocess.run(command, input=f'#include "{path}"\n', capture_output=True, text=True)
    if done.returncode:
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        return f"{relative(path, root)}: does not compile alone with {os.path.basename(compiler)}: {first}"
    return None


def check_headers(root, compilers, isas):
    missing = [c for c in compilers if not shutil.which(c)]
    if missing:
        yield f"compiler not found: {', '.join(missing)}"
        return
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(lambda job: compile_alone(root, job), header_jobs(root, compilers, isas)))


# ---- symbols of the release library ----------------------------------------------------------------------------------

# The library never prints, ends the process, starts another, installs handlers or changes the floating-point or
# locale environment. Allowed: snprintf into memory, and std::terminate behind noexcept.
FORBIDDEN_CALL = re.compile(
    r"(?:__)?v?f?w?printf(?:_chk)?|(?:__)?vd?printf(?:_chk)?|dprintf|puts|fputs\w*|putchar|putc|fputc|fputw\w*|perror|psignal"
    r"|(?:v)?syslog|abort|exit|_exit|_Exit|quick_exit|pthread_exit|__assert_fail|errx?|warnx?|longjmp|siglongjmp"
    r"|signal|sigaction|raise|kill|alarm|setitimer|fesetround|fesetenv|feenableexcept"
    r"|fedisableexcept|feholdexcept|feupdateenv|setlocale|uselocale|setenv|unsetenv|putenv|fork|vfork|exec\w+|system|popen"
    r"|posix_spawnp?|std::(?:w?cout|w?cerr|w?clog|w?cin|exit|quick_exit|abort|set_terminate|set_new_handler)"
    r"|std::ios_base::Init::.*|std::locale::global.*")
EXPORTED = re.compile(r"(?:(?:typeinfo|typeinfo name|vtable|VTT|guard variable) for )?headwise::.*|HEADWISE_\w+")


def lines_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def check_symbols(library):
    name = os.path.basename(library)
    shared = ".so" in name
    undefined = lines_of("nm", "-C", "-u", *(["-D"] if shared else []), library)
    for symbol in sorted({re.sub(r"@.*", "", line.split(maxsplit=1)[1]) for line in undefined if " U " in line}):
        if FORBIDDEN_CALL.fullmatch(symbol.split("(")[0]):
            yield f"{name}: calls {symbol}, which a library must not do"
    if shared:
        for line in lines_of("nm", "-C", "-D", "--defined-only", library):
            symbol = re.sub(r"@.*", "", line.split(maxsplit=2)[2])
            if not EXPORTED.fullmatch(symbol):
                yield f"{name}: exports {symbol}, which is not in namespace headwise"


def main():
    parser = argparse.ArgumentParser(description="Checks the rules of the tree.")
    parser.add_argument("rules", choices=("text", "headers", "symbols"))
    parser.add_argument("paths", nargs="*", help="the root of the tree, or libraries")
    parser.add_argument("--compiler", action="append", default=[], help="for headers; the first one also checks src/")
    parser.add_argument("--isa", action="append", default=[], help="for headers: entries of cmake/isa.cmake")
    arguments = parser.parse_args()
    root = pathlib.Path(arguments.paths[0] if arguments.paths else __file__).resolve()
    root = root if arguments.paths else root.parents[2]
    if arguments.rules == "text":
        faults = list(check_text(root))
    elif arguments.rules == "headers":
        faults = list(check_headers(root, arguments.compiler or ["c++"], arguments.isa or [PLAIN_ISA]))
    else:
        faults = [fault for library in arguments.paths for fault in check_symbols(library)]
    for fault in faults:
        print(fault)
    print(f"tree rules ({arguments.rules}): {len(faults) or 'no'} fault{'' if len(faults) == 1 else 's'}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
