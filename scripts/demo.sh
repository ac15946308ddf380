#!/usr/bin/env bash
# Builds headwise and shows it on real layers: a worked example, a trace, every sample layer checked against its
# expected output, and the time of each layer beside this machine's limit. Exits non-zero if a check fails.
# Installs what is missing where it may (Debian, root or sudo).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

need_build_tools
say "build"
build_release headwise_cli layer_bench
headwise=build/release/bin/headwise

say "this machine"
"$headwise" info

say "two heads look at two places at once"
"$headwise" example

say "layer 8 of SmolLM2 from x to y: 9 query heads share 3 kv heads"
"$headwise" trace --model samples/smollm2 --layer 8 --input samples/smollm2/hidden.safetensors:text.layer8.in

failed=0
checked=0
# check MODEL LAYER SEQUENCE [option...]: runs a stored input through the layer and compares with the stored output.
check() {
    local hidden=samples/$1/hidden.safetensors name=$3.layer$2
    printf '%-8s layer %-2s %-9s' "$1" "$2" "$3"
    checked=$((checked + 1))
    if "$headwise" run --model "samples/$1" --layer "$2" --input "$hidden:$name.in" --check "$hidden:$name.out" \
        "${@:4}" >"$log" 2>&1; then
        sed -n 's/^check *//p' "$log"
    else
        failed=$((failed + 1))
        printf 'FAIL\n'
        cat "$log"
    fi
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

say "every sample layer against its expected output (float64 arithmetic on the same weights)"
for layer in 0 1 2 3 4 5; do
    for sequence in brackets far_verb plain repeat; do check minilm "$layer" "$sequence"; done
done
check minilm 0 batch --lengths samples/minilm/hidden.safetensors:batch.lengths
for layer in 8 16 18; do
    for sequence in repeat text; do check smollm2 "$layer" "$sequence"; done
done

say "time per layer, x to y, beside what the arithmetic alone needs at this machine's peak"
build/release/bench/layer_bench samples/minilm samples/smollm2

say "$((checked - failed)) of $checked checks passed"
[ "$failed" -eq 0 ]
