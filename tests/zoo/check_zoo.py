#!/usr/bin/env python3
"""Checks the importers against the model classes of the installed transformers. Opt-in: no build or test runs it.

Makes a tiny random model of every entry of families.py, saves it, runs it in float64 while hooks note what every
attention module takes and gives, and lets headwise_conformance judge the layers that headwise loads from the folder.

    check_zoo.py --runner build/release/bin/headwise_conformance [--only TEXT] [--keep FOLDER] [--list]

Needs torch, transformers 5, gguf and safetensors. Exit code: 0 every layer agrees, 1 one does not, 2 a model could
not be made.
"""
import argparse
import inspect
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import safetensors.torch
import torch
import transformers

import families
import gguf_models

BATCH, LENGTH, PAIR_LENGTH, PADDED = 2, 14, 11, 3
SEED = 20261201


def make_model(case):
    """A model whose weights float32 holds exactly, large enough that attention is far from uniform."""
    model_class = getattr(transformers, case.model)
    config = model_class.config_class(**case.settings)
    config._attn_implementation = config._experts_implementation = "eager"
    model = model_class(config).float().eval()
    random = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=random)
            if weight.dim() < 2:
                weight.copy_(noise * 0.3 + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0))
            else:
                weight.copy_(noise * (1.5 / weight[0].numel() ** 0.5))
    return model


def padding(length, left):
    """Real tokens: the last sequence has some of padding on one side."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[-1, slice(0, PADDED) if left else slice(length - PADDED, length)] = 0
    return mask


def make_inputs(case):
    """The arguments of the model, and the mask of real tokens of each side ("" where there is one side)."""
    random = torch.Generator().manual_seed(SEED + 1)
    ids = torch.randint(3, 60, (BATCH, LENGTH), generator=random)
    if case.inputs == "text":
        causal = case.parts[0].kind == "causal_self"
        mask = padding(LENGTH, left=causal)
        return dict(input_ids=ids, attention_mask=mask), {"": mask}
    if case.inputs == "text_pair":
        mask = padding(LENGTH, left=False)
        decoder_ids = torch.randint(3, 60, (BATCH, PAIR_LENGTH), generator=random)
        return dict(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder_ids), {"encoder": mask}
    if case.inputs == "audio":
        return dict(input_values=torch.randn(BATCH, 400, generator=random, dtype=torch.float64)), {}
    if case.inputs == "spectrum":
        decoder_ids = torch.randint(3, 60, (BATCH, PAIR_LENGTH), generator=random)
        return dict(input_features=torch.randn(BATCH, 8, 40, generator=random, dtype=torch.float64),
                    decoder_input_ids=decoder_ids), {}
    pixels = torch.randn(BATCH, 3, 16, 16, generator=random, dtype=torch.float64)
    if case.inputs == "image":
        return dict(pixel_values=pixels), {}
    mask = padding(LENGTH, left=False)
    return dict(input_ids=ids, attention_mask=mask, pixel_values=pixels), {"text": mask}


def as_float32(x):
    """Rows of padding may be NaN: a query of theirs sees no key at all."""
    return torch.nan_to_num(x).float().double()


class Notes:
    """Hooks on one attention module. Inputs are rounded to float32, so that both sides compute from the same
    numbers."""

    def __init__(self, model, name, part, match):
        self.part, self.name = part, name
        self.layer = int(match.group(1)) if match.groups() else 0
        self.x = self.kv = self.y = None
        modules = dict(model.named_modules())
        source = modules[name]
        self.parameters = list(inspect.signature(source.forward).parameters)
        source.register_forward_pre_hook(self.before, with_kwargs=True)
        target = source
        if part.output:
            tail = part.output.replace("#", str(self.layer))
            target = next(module for key, module in modules.items() if key.endswith(tail))
        target.register_forward_hook(self.after)

    def before(self, _module, args, kwargs):
        if self.x is not None:
            return None  # the module serves several layers: the first one counts
        named = dict(zip(self.parameters, args)) | kwargs
        for key in ("hidden_states", "input", "query", "x"):
            if named.get(key) is not None:
                named[key] = self.x = as_float32(named[key])
                break
        for key in ("key_value_states", "encoder_hidden_states", "current_states"):
            if self.part.kind == "cross" and named.get(key) is not None:
                named[key] = self.kv = as_float32(named[key])
        return (), named

    def after(self, _module, _args, output):
        if self.y is None:
            self.y = (output[0] if isinstance(output, (tuple, list)) else output).detach()


def find_modules(model, case):
    notes = []
    for name, _ in model.named_modules():
        for part in case.parts:
            match = re.search(part.pattern, name)
            if match and (not part.side or part.side in name or part.kind == "cross"):
                notes.append(Notes(model, name, part, match))
    if not notes:
        raise ValueError("no module matches " + ", ".join(part.pattern for part in case.parts))
    return notes


def legacy_spelling(config):
    """The same config.json in the words of transformers 4, or None where this script does not know them."""
    old = {key: value for key, value in config.items() if key not in ("rope_parameters", "layer_types")}
    rope = dict(config.get("rope_parameters") or {})
    if any(isinstance(value, dict) for value in rope.values()) or "text_config" in config:
        return None
    if rope:
        neox = config.get("model_type") == "gpt_neox"
        old["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta", 10000.0)
        if "partial_rotary_factor" in rope:
            old["rotary_pct" if neox else "partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type", "default")
        old["rope_scaling"] = None if kind == "default" else {"type": kind} | rope
    old["torch_dtype"] = old.pop("dtype", "float32")
    return old


def write_legacy(model, directory):
    """Beside config.json, where the model class reads both alike. Returns whether it has."""
    config = json.loads((directory / "config.json").read_text())
    old = legacy_spelling(config)
    if old is None or old.keys() == config.keys():
        return False
    try:
        again, same = type(model.config).from_dict(old).to_dict(), model.config.to_dict()
    except Exception:  # the model class cannot do without the new words
        return False
    if any(again.get(key) != same.get(key) for key in ("rope_parameters", "layer_types", "sliding_window")):
        return False
    (directory / "config.legacy.json").write_text(json.dumps(old, indent=1))
    return True


def write_case(case, folder):
    """Returns the line of the manifest."""
    torch.manual_seed(SEED)
    model = make_model(case)
    directory = folder / case.name
    directory.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(directory)
    files = ["cases.safetensors", "model.safetensors", "config.json"]
    files += ["config.legacy.json"] if write_legacy(model, directory) else []
    files += ["model.gguf"] if gguf_models.write_gguf(model, case, directory) else []
    model.double()
    notes = find_modules(model, case)
    inputs, masks = make_inputs(case)
    with torch.no_grad():
        model(**inputs)
    tensors, points = {}, []
    for side, mask in masks.items():
        tensors[f"{side}.mask" if side else "mask"] = mask.bool()
    for number, note in enumerate(notes):
        if note.x is None or note.y is None:
            raise ValueError(f"{note.name} was not run")
        key = ".".join(filter(None, [str(number), note.part.side, note.part.kind, f"L{note.layer}"]))
        x, y = note.x.reshape(BATCH, -1, note.x.shape[-1]), note.y.reshape(BATCH, -1, note.y.shape[-1])
        tensors |= {f"{key}.x": x.float(), f"{key}.y": y, f"{key}.positions": positions(x)}
        if note.kv is not None:
            tensors[f"{key}.kv"] = note.kv.float()
        own = f"{note.part.side}.mask" if note.part.side else "mask"
        points.append({"key": key, "layer": note.layer, "kind": note.part.kind, "module": note.name,
                       "position_ids": f"{key}.positions", "padding_mask": own if own in tensors else None,
                       "kv_mask": "encoder.mask" if note.part.kind == "cross" and masks else None, "split": None, "grads": False,
                       "step_stored": False})
    tensors = {name: tensor.contiguous().clone() for name, tensor in tensors.items()}
    safetensors.torch.save_file(tensors, directory / "cases.safetensors")
    return {"id": case.name, "family": case.name.split("/")[0], "dir": case.name, "model_type": model.config.model_type,
            "architecture": case.model, "rules": [], "points": points, "legacy_config": "config.legacy.json" in files,
            "sha256": {file: "" for file in files}}


def positions(x):
    return torch.arange(x.shape[1]).expand(BATCH, -1)


def judge(runner, folder):
    command = [runner, str(folder), "--no-sha", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"suite"')]
    if not results:
        sys.exit(f"{runner} gave no result: {done.stderr}")
    return results


def main():
    parser = argparse.ArgumentParser(description="Checks the importers against transformers.")
    parser.add_argument("--runner", default="build/release/bin/headwise_conformance")
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--keep", help="folder for the models; otherwise they are removed")
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument("--trace", action="store_true", help="print where a model could not be made")
    arguments = parser.parse_args()
    cases = [case for case in families.CASES if arguments.only in case.name]
    if arguments.list:
        print("\n".join(case.name for case in cases))
        return 0
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(arguments.keep or temporary)
        lines, broken = [], []
        for case in cases:
            try:
                lines.append(write_case(case, folder))
            except Exception as error:  # a model class may change at any release: say which one and go on
                broken.append(f"{case.name}: {type(error).__name__}: {error}")
                if arguments.trace:
                    traceback.print_exc()
        (folder / "manifest.json").write_text(json.dumps({"format": 1, "cases": lines}))
        results = judge(arguments.runner, folder) if lines else []
    bad, refused = 0, {case.name: case.refused for case in cases if case.refused}
    for result in results:
        expected = refused.get(result["name"].split(":")[0])
        if expected and result["status"] == "SKIP" and expected in result["reason"]:
            result["status"] = "PASS"
        worst = max((output["worst_ratio"] for output in result["outputs"]), default=float("nan"))
        bad += result["status"] != "PASS"
        print(f"{result['status']:5} {result['name']:50} {worst:10.3g}  {result['reason'][:200]}")
    for line in broken:
        print("MADE NOT", line)
    print(f"{len(results)} layers of {len(lines)} models: {bad} do not agree; {len(broken)} models could not be made")
    return 1 if bad else 2 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
