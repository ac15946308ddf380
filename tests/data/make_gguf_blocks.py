#!/usr/bin/env python3
"""Makes gguf_blocks.gguf and gguf_blocks.safetensors beside this script, once; the tests read both.

Random blocks of every element type that headwise loads, written by the `gguf` package, and what its decoder makes of
them. The metadata holds one value of every type of the format. Made with gguf 0.19; needs numpy and safetensors too.
"""
import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value
from safetensors.numpy import save_file

SEED = 20261201
ROWS = 3
QUANTISED = [Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0, Type.Q2_K, Type.Q3_K, Type.Q4_K, Type.Q5_K, Type.Q6_K]
# Where the f16 factors of a block stand, in bytes.
FACTORS = {Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0], Type.Q2_K: [80, 82],
           Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}
# One block each has these factors: infinite, NaN, the least subnormal, the largest, minus zero.
SPECIAL = [0x7C00, 0x7E01, 0x0001, 0x7BFF, 0x8000]


def random_blocks(random, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    per_row = 2 if elements == 256 else 5
    blocks = random.integers(0, 256, (ROWS * per_row, size), dtype=np.uint8)
    for at in FACTORS[kind]:
        factor = random.standard_normal(len(blocks)).astype(np.float16)
        factor[: len(SPECIAL)] = np.array(SPECIAL, np.uint16).view(np.float16)
        blocks[:, at : at + 2] = random.permutation(factor).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, per_row * size)


def add_metadata(writer):
    writer.add_uint8("test.u8", 200)
    writer.add_int8("test.i8", -100)
    writer.add_uint16("test.u16", 60000)
    writer.add_int16("test.i16", -30000)
    writer.add_uint32("test.u32", 4000000000)
    writer.add_int32("test.i32", -2000000000)
    writer.add_uint64("test.u64", 1 << 62)
    writer.add_int64("test.i64", -(1 << 62))
    writer.add_float32("test.f32", 0.5)
    writer.add_float64("test.f64", -0.25)
    writer.add_bool("test.bool", True)
    writer.add_string("test.string", "größer")
    writer.add_array("test.numbers", [1, 2, 3])
    writer.add_array("test.strings", ["a", "", "bcd"])
    writer.add_key_value("test.flags", [True, False], Value.ARRAY, Value.BOOL)


def main():
    random = np.random.default_rng(SEED)
    here = pathlib.Path(__file__).parent
    writer = gguf.GGUFWriter(here / "gguf_blocks.gguf", "test")
    add_metadata(writer)
    values = {}
    for kind in QUANTISED:
        blocks = random_blocks(random, kind)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        with np.errstate(all="ignore"):
            values[kind.name] = gguf.dequantize(blocks, kind)
    plain = random.standard_normal((2, 3, 5)).astype(np.float32)
    for kind in (Type.F32, Type.F16, Type.BF16):
        data = gguf.quantize(plain, kind)
        writer.add_tensor(kind.name, data, raw_dtype=kind)
        values[kind.name] = np.ascontiguousarray(gguf.dequantize(data, kind)).reshape(plain.shape)
    writer.add_tensor("unsupported", random.integers(0, 256, (1, 18), dtype=np.uint8), raw_dtype=Type.IQ4_NL)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(values, here / "gguf_blocks.safetensors")


if __name__ == "__main__":
    main()
