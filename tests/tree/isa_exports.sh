#!/bin/sh
# isa_exports.sh NM ISA OBJECT...
#
# What the objects of one ISA may define: strong symbols in namespace headwise::ISA and local ones. A weak symbol (an
# inline function or template of a common header) could be the copy that the linker keeps for all callers, and so hand
# code with this ISA's instructions to a CPU that lacks them. A constructor would run such code while the program loads.
set -eu
nm=$1
isa=$2
shift 2
own=_ZN8headwise${#isa}$isa
failed=0
for object in "$@"; do
    "$nm" "$object" | awk -v own="$own" -v object="$object" '
        NF < 2 { next }
        {
            kind = $(NF - 1); name = $NF; count++
            ours = index(name, own) == 1
            if (kind ~ /^[WVuwvi]$/) { report("weak or unique symbol") }
            else if (kind == "U") {
                if (name ~ /^_Z/ && !ours) report("needs a C++ symbol of another namespace")
                else if (name ~ /^__cxa_/) report("needs the C++ run-time library")
            }
            else if (kind ~ /^[A-Z]$/) { if (!ours && kind != "N") report("defines a symbol outside its namespace") }
            else if (name ~ /^_GLOBAL__/) report("has a constructor")
        }
        function report(what) { printf "%s: %s: %s %s\n", object, what, kind, name; bad = 1 }
        END { if (count == 0) { printf "%s: no symbols\n", object; bad = 1 } exit bad }
    ' || failed=1
done
exit $failed
