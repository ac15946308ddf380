#!/usr/bin/env python3
"""Plants one violation of every rule of check_tree.py in a copy of the tree and sees it flagged.

    tree_test.py [--compiler CXX]
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_tree

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = "c++"


class TreeCase(unittest.TestCase):
    """A fresh copy of the code for every test."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        for part in ("include", "src"):
            shutil.copytree(ROOT / part, self.root / part)

    def plant(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.read_text() + text if path.exists() else text)

    def faults(self):
        return list(check_tree.check_text(self.root))

    def assert_flagged(self, name, text, expected):
        before = self.faults()
        self.plant(name, text)
        faults = [fault for fault in self.faults() if fault not in before]
        self.assertTrue(any(expected in fault for fault in faults), f"'{expected}' is not in {faults}")
        self.assertEqual(len(faults), 1, faults)


class TextRules(TreeCase):

    def test_every_public_header_has_a_room(self):
        names = {path.name for path in (ROOT / "include" / "headwise").glob("*.h")}
        self.assertEqual(names, set(check_tree.PUBLIC_HEADERS))

    def test_every_folder_of_src_is_a_room(self):
        names = {path.name for path in (ROOT / "src").iterdir() if path.is_dir()}
        self.assertEqual(names, set(check_tree.ARROWS))

    def test_arrows_have_no_cycle(self):
        done = set()
        for room, targets in check_tree.ARROWS.items():
            self.assertLessEqual(set(targets), done, f"{room} names a room that stands below it")
            done.add(room)

    def test_upward_include(self):
        self.assert_flagged("src/core/tensor.cpp", '#include "kernels/rows.h"\n', "arrow core -> kernels")

    def test_sideways_include(self):
        self.plant("src/heads/planted.h", "#pragma once\n")
        self.assert_flagged("src/project/planted.cpp", '#include "heads/planted.h"\n', "arrow project -> heads")

    def test_public_header_of_a_higher_room(self):
        self.assert_flagged("src/attend/planted.cpp", "#include <headwise/mha.h>\n", "arrow attend -> mha")

    def test_public_header_that_points_upward(self):
        self.assert_flagged("include/headwise/tensor.h", "#include <headwise/mask.h>\n", "arrow core -> attend")

    def test_umbrella_inside_the_library(self):
        self.assert_flagged("src/weights/planted.cpp", "#include <headwise/headwise.h>\n", "arrow weights -> umbrella")

    def test_command_line_sees_public_headers_only(self):
        self.assert_flagged("cli/planted.cpp", '#include "core/check.h"\n', "arrow cli -> core")

    def test_bench_sees_few_internal_headers(self):
        self.plant("bench/planted.cpp", '#include "kernels/dispatch.h"\n')
        self.assert_flagged("bench/planted.cpp", '#include "kernels/rows.h"\n', "arrow bench -> kernels")

    def test_new_room_without_arrows(self):
        self.assert_flagged("src/extras/planted.cpp", "#include <vector>\n", "is in no room")

    def test_public_header_without_a_room(self):
        self.assert_flagged("include/headwise/planted.h", "#pragma once\n#include <vector>\n", "is in no room")

    def test_include_that_is_not_in_src(self):
        self.assert_flagged("src/core/tensor.cpp", '#include "check.h"\n', "does not exist in src/")

    def test_internal_header_in_a_public_one(self):
        self.assert_flagged("include/headwise/mha.h", '#include "core/check.h"\n', "public header includes")

    def test_system_header_in_a_public_one(self):
        self.assert_flagged("include/headwise/mha.h", "#include <unistd.h>\n", "only the C++ standard library")

    def test_library_of_others_in_the_wrong_room(self):
        self.assert_flagged("src/mha/planted.cpp", "#include <nlohmann/json.hpp>\n", "may be included only by")

    def test_library_of_others_in_too_many_files(self):
        self.plant("cli/one.cpp", "#include <CLI/CLI.hpp>\n")
        self.assert_flagged("cli/two.cpp", "#include <CLI/CLI.hpp>\n", "is included by 2 files of cli, at most 1")

    def test_cpp_header_in_a_kernel(self):
        self.assert_flagged("src/kernels/rows.isa.cpp", "#include <vector>\n", "C headers only")

    def test_cpp_header_that_a_kernel_reaches(self):
        self.assert_flagged("src/kernels/storage.h", "#include <cmath>\n", "C headers only")

    def test_other_room_in_a_kernel(self):
        self.plant("src/core/planted.h", "#pragma once\n")
        self.assert_flagged("src/kernels/rows.isa.cpp", '#include "core/planted.h"\n', "may include kernels/ only")

    def test_long_source(self):
        self.assert_flagged("src/core/planted.cpp", "\n" * 401, "401 lines, at most 400")

    def test_long_public_header(self):
        lines = (self.root / "include/headwise/error.h").read_text().count("\n")
        self.assert_flagged("include/headwise/error.h", "\n" * (151 - lines), "151 lines, at most 150")

    def test_file_name(self):
        self.assert_flagged("src/core/PlanTed.cpp", "", "snake_case")

    def test_missing_include_guard(self):
        self.assert_flagged("src/core/planted.h", "int planted();\n", "#pragma once")

    def test_foreign_macro(self):
        self.plant("src/core/planted.cpp", "#define PLANTED 1\n")
        self.assertTrue(any("macro PLANTED" in fault for fault in self.faults()))

    def test_too_many_macros(self):
        self.plant("src/core/planted.cpp", "".join(f"#define HEADWISE_PLANTED_{i} 1\n" for i in range(6)))
        self.assertTrue(any("macros are defined, at most 5" in fault for fault in self.faults()))

    def test_x86_intrinsic(self):
        self.assert_flagged("src/attend/planted.cpp", "auto x = _mm256_setzero_ps();\n", "intrinsic _mm256_setzero_ps")

    def test_x86_intrinsic_header(self):
        self.assert_flagged("src/kernels/linear.h", "#include <immintrin.h>\n", "intrinsic immintrin.h")

    def test_arm_intrinsic(self):
        self.assert_flagged("src/attend/planted.cpp", "auto x = vld1q_f32(p);\n", "intrinsic vld1q_f32")

    def test_arm_type(self):
        self.assert_flagged("src/attend/planted.cpp", "float32x4_t x;\n", "intrinsic float32x4_t")

    def test_vec_headers_may_hold_intrinsics(self):
        before = self.faults()
        self.plant("src/kernels/vec_avx2.h", "inline __m256 planted() { return _mm256_setzero_ps(); }\n")
        self.assertEqual(self.faults(), before)

    def test_floating_point_environment(self):
        code = 'void f(unsigned x) { asm volatile("ldmxcsr %0" : : "m"(x)); }\n'
        self.assert_flagged("src/core/planted.cpp", code, "ldmxcsr sets the floating-point environment")

    def test_path_of_one_machine(self):
        for folder in ("home", "root", "work"):
            with self.subTest(folder):
                self.setUp()
                self.assert_flagged("docs/planted.md", f"see /{folder}/someone/notes\n", "exists on one machine only")

    def test_path_out_of_the_tree(self):
        self.assert_flagged("docs/planted.md", "see .." + "/shared/notes\n", "exists on one machine only")


class HeaderRules(TreeCase):
    def faults(self):
        return list(check_tree.check_headers(self.root, [COMPILER], [check_tree.PLAIN_ISA]))

    def only(self, *names):
        """Keeps the named headers, so that a test compiles two files and not all."""
        for path in list(self.root.glob("include/headwise/*.h")) + list(self.root.glob("src/*/*.h")):
            if path.relative_to(self.root).as_posix() not in names:
                path.unlink()

    def test_public_header_that_does_not_compile_alone(self):
        self.only("include/headwise/export.h")
        self.assert_flagged("include/headwise/export.h", "std::string planted();\n", "export.h: does not compile alone")

    def test_public_header_with_a_warning(self):
        self.only("include/headwise/export.h")
        self.assert_flagged("include/headwise/export.h", "inline int planted(double x) { return x; }\n", "compile alone")

    def test_internal_header_that_does_not_compile_alone(self):
        self.only()
        self.assert_flagged("src/core/planted.h", "#pragma once\nstd::string planted();\n", "does not compile alone")

    def test_kernel_header_is_compiled_for_an_isa(self):
        self.only("src/kernels/vec.h", "src/kernels/vec_portable.h")
        self.assert_flagged("src/kernels/vec_portable.h", "planted;\n", "vec.h: does not compile alone")

    def test_missing_compiler(self):
        self.assertIn("compiler not found", list(check_tree.check_headers(self.root, ["no-such-compiler"], []))[0])


class SymbolRules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def build(self, code, shared=False):
        (self.folder / "planted.cpp").write_text(code)
        target = self.folder / ("libplanted.so" if shared else "planted.o")
        command = [COMPILER, "-std=c++20", "-O1", "-fPIC", "-o", target, self.folder / "planted.cpp"]
        subprocess.run(command + (["-shared"] if shared else ["-c"]), check=True)
        if shared:
            return str(target)
        archive = self.folder / "libplanted.a"
        subprocess.run(["ar", "rcs", archive, target], check=True)
        return str(archive)

    def faults(self, code, shared=False):
        return list(check_tree.check_symbols(self.build(code, shared)))

    def test_calls_that_a_library_must_not_make(self):
        code = "#include <cstdio>\n#include <cstdlib>\n#include <csignal>\n#include <cfenv>\n#include <iostream>\nvoid f(int n) {{ {}; }}"
        calls = {
            "printf": 'std::printf("%d", n)', "puts": 'std::puts("n")', "fwrite to a stream": 'std::fputs("n", stderr)',
            "exit": "std::exit(n)", "abort": "std::abort()", "quick_exit": "std::quick_exit(n)",
            "signal": "std::signal(n, SIG_IGN)", "std::cout": "std::cout << n", "std::cerr": "std::cerr << n",
            "fesetround": "std::fesetround(n)",
        }
        for name, call in calls.items():
            with self.subTest(name):
                self.assertTrue(any("must not do" in f for f in self.faults(code.format(call))), call)

    def test_calls_in_a_shared_library(self):
        faults = self.faults("#include <cstdlib>\nnamespace headwise { void f() { std::abort(); } }", shared=True)
        self.assertEqual(faults, ["libplanted.so: calls abort, which a library must not do"])

    def test_allowed_calls(self):
        code = ("#include <cstdio>\n#include <stdexcept>\nvoid g();\nnamespace headwise {\n"
                "int f(char* p, int n) noexcept { g(); return std::snprintf(p, 9, \"%d\", n); }\n"
                "void h() { throw std::runtime_error(\"x\"); } }")
        self.assertEqual(self.faults(code), [])

    def test_foreign_export(self):
        faults = self.faults("namespace headwise { void fine() {} }\nvoid planted() {}", shared=True)
        self.assertEqual(faults, ["libplanted.so: exports planted(), which is not in namespace headwise"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compiler"]:
        COMPILER = sys.argv[2]
        del sys.argv[1:3]
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    unittest.main()
