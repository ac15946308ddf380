"""Writes the attention of a tiny model as model.gguf beside its config.json, with the names, permutations and keys of the
reference converter of the format. headwise must read the same layers from both."""
import math

import gguf
import numpy as np

# model_type -> (architecture, whether rows of q and k are stored with the two of a pair side by side)
ARCHITECTURES = {
    "llama": ("llama", True), "mistral": ("llama", True), "mixtral": ("llama", True), "arcee": ("arcee", True),
    "granite": ("granite", True), "granitemoe": ("granitemoe", True), "olmo": ("olmo", True),
    "smollm3": ("smollm3", True), "ernie4_5": ("ernie4_5", False), "cohere2": ("cohere2", False),
    "qwen2": ("qwen2", False), "qwen2_moe": ("qwen2moe", False), "qwen3": ("qwen3", False),
    "qwen3_moe": ("qwen3moe", False), "gemma": ("gemma", False), "gemma2": ("gemma2", False),
    "gemma3_text": ("gemma3", False), "phi": ("phi2", False), "phi3": ("phi3", False),
    "starcoder2": ("starcoder2", False), "olmo2": ("olmo2", False), "nemotron": ("nemotron", False),
    "seed_oss": ("seed_oss", False), "gpt_neox": ("gptneox", False), "gpt2": ("gpt2", False),
    "gpt_bigcode": ("starcoder", False), "bloom": ("bloom", False), "mpt": ("mpt", False), "falcon": ("falcon", False),
}
# What the format cannot say, or the reference reader does not obey.
NOT_IN_GGUF = {"qwen2/windows", "qwen2_moe/no_bias", "qwen3_moe/windows", "gemma2/softcap", "gemma3_text/six_layers",
               "gpt2/by_layer", "gpt2/unscaled", "gpt_neox/no_bias", "starcoder2/bias_window", "phi/norm"}


def first(config, *names):
    return next((value for value in (getattr(config, name, None) for name in names) if value is not None), None)


def pairs_side_by_side(weight, head_dim):
    """Row i of a head and row i + D/2 become rows 2i and 2i + 1."""
    shape = weight.shape
    return weight.reshape(-1, 2, head_dim // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def by_kind(weight, groups, head_dim, queries):
    """From [groups][queries q heads, k, v] to all q, all k, all v."""
    parts = weight.reshape(groups, queries + 2, head_dim, *weight.shape[1:])
    cut = [parts[:, :queries], parts[:, queries:queries + 1], parts[:, queries + 1:]]
    return np.concatenate([part.reshape(-1, *weight.shape[1:]) for part in cut])


class Writer:
    def __init__(self, model, case):
        self.config, self.state, self.case = model.config, model.state_dict(), case
        self.architecture, self.permuted = ARCHITECTURES[self.config.model_type]
        config = self.config
        self.layers = first(config, "num_hidden_layers", "n_layers", "n_layer")
        self.heads = first(config, "num_attention_heads", "n_heads", "n_head")
        self.width = first(config, "hidden_size", "d_model", "n_embd")
        self.head_dim = first(config, "head_dim") or self.width // self.heads
        self.kv_heads = self.count_kv_heads()
        self.names = gguf.get_tensor_name_map(
            next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == self.architecture), self.layers)

    def count_kv_heads(self):
        config = self.config
        if config.model_type == "falcon":
            return config.num_kv_heads if config.new_decoder_architecture else 1 if config.multi_query else self.heads
        if config.model_type == "gpt_bigcode":
            return 1 if config.multi_query else self.heads
        return first(config, "num_key_value_heads") or self.heads

    def tensors(self):
        for name, tensor in self.state.items():
            stem, _, ending = name.rpartition(".")
            new = self.names.get_name(stem)
            if new and new.startswith("blk.") and ".attn_" in new and ending in ("weight", "bias"):
                weight = tensor.float().numpy()
                yield f"{new}.{ending}", np.ascontiguousarray(self.reshape(new.split(".")[-1], ending, weight))

    def reshape(self, part, ending, weight):
        kind = self.config.model_type
        if kind == "gpt2" and ending == "weight":
            return weight.T
        if part in ("attn_q", "attn_k") and self.permuted:
            return pairs_side_by_side(weight, self.head_dim)
        if part in ("attn_q_norm", "attn_k_norm") and kind == "gemma3_text":
            return weight + 1
        if part == "attn_qkv" and (kind in ("bloom", "gpt_neox", "falcon") or
                                   kind == "gpt_bigcode" and self.kv_heads > 1):
            return by_kind(weight, self.kv_heads, self.head_dim, self.heads // self.kv_heads)
        return weight

    def keys(self, out):
        config = self.config
        out.add_block_count(self.layers)
        out.add_embedding_length(self.width)
        out.add_context_length(first(config, "max_position_embeddings", "max_seq_len", "n_positions") or 64)
        out.add_head_count(self.heads)
        out.add_head_count_kv(self.kv_heads)
        out.add_key_length(self.head_dim)
        out.add_value_length(self.head_dim)
        out.add_layer_norm_rms_eps(first(config, "rms_norm_eps") or 1e-5)
        window = first(config, "sliding_window")
        if window and self.architecture in ("llama", "gemma2", "gemma3", "phi3", "cohere2"):
            out.add_sliding_window(window)
        if first(config, "attention_multiplier"):
            out.add_attention_scale(config.attention_multiplier)
        if first(config, "attn_logit_softcapping") and self.architecture == "gemma2":
            out.add_attn_logit_softcapping(config.attn_logit_softcapping)
        clip = first(config, "clip_qkv") or first(getattr(config, "attn_config", None), "clip_qkv")
        if clip:
            out.add_clamp_kqv(clip)
        if self.architecture == "mpt":
            out.add_max_alibi_bias(8.0)
        self.rope_keys(out)

    def rope_keys(self, out):
        rope = first(self.config, "rope_parameters")
        if not rope or self.architecture in ("gpt2", "starcoder", "bloom", "mpt"):
            return
        rope = rope.get("full_attention", rope)
        width = int(self.head_dim * rope.get("partial_rotary_factor", 1.0))
        out.add_rope_freq_base(rope["rope_theta"])
        out.add_rope_dimension_count(width)
        kind = rope["rope_type"]
        if kind in ("linear", "yarn"):
            out.add_rope_scaling_type(gguf.RopeScalingType(kind))
            out.add_rope_scaling_factor(rope["factor"])
        if kind == "yarn":
            out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        if kind == "llama3":
            out.add_tensor("rope_freqs.weight", self.llama3_divisors(rope, width))
        if kind == "longrope":
            original = self.config.original_max_position_embeddings
            stretch = self.config.max_position_embeddings / original
            out.add_rope_scaling_orig_ctx_len(original)
            out.add_rope_scaling_attn_factors(math.sqrt(1 + math.log(stretch) / math.log(original)))
            for length in ("long", "short"):
                out.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))

    @staticmethod
    def llama3_divisors(rope, width):
        wave = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, width, 2) / width)
        turns = rope["original_max_position_embeddings"] / wave
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def write_gguf(model, case, directory):
    """Returns whether the format can say what the model computes."""
    if model.config.model_type not in ARCHITECTURES or case.name in NOT_IN_GGUF:
        return False
    writer = Writer(model, case)
    out = gguf.GGUFWriter(directory / "model.gguf", writer.architecture)
    writer.keys(out)
    for name, weight in writer.tensors():
        out.add_tensor(name, weight)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return True
