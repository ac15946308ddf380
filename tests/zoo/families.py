"""The models that check_zoo.py makes: tiny, random, with the switches of each family set in several ways."""
import dataclasses
from typing import Any

SMALL = dict(hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
             max_position_embeddings=64)
GROUPED = SMALL | dict(num_key_value_heads=2)
ROWS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)


@dataclasses.dataclass
class Part:
    """Attention modules: `pattern` matches the name of the module whose input is taken, and finds its layer."""
    pattern: str
    kind: str  # causal_self, bidirectional_self, cross
    output: str = ""  # the module whose output is taken: this, with # for the layer; empty: the same
    side: str = ""  # encoder-decoders: which input mask belongs to the queries


@dataclasses.dataclass
class Case:
    name: str  # family/case
    model: str  # class of transformers
    settings: dict
    parts: list
    inputs: str = "text"  # text, image, audio, spectrum, text_pair (encoder and decoder), image_text
    refused: str = ""  # headwise must refuse the model with a message that holds this


DECODER = [Part(r"layers\.(\d+)\.self_attn$", "causal_self")]
BERT = [Part(r"encoder\.layer\.(\d+)\.attention\.self$", "bidirectional_self",
             "encoder.layer.#.attention.output.dense")]
PAIR = [Part(r"encoder\.layers\.(\d+)\.self_attn$", "bidirectional_self", side="encoder"),
        Part(r"decoder\.layers\.(\d+)\.self_attn$", "causal_self", side="decoder"),
        Part(r"decoder\.layers\.(\d+)\.encoder_attn$", "cross", side="decoder")]
PAIR_SIZES = dict(d_model=64, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=8,
                  encoder_ffn_dim=48, decoder_ffn_dim=48, vocab_size=64, max_position_embeddings=64,
                  decoder_start_token_id=1, forced_eos_token_id=None, **ROWS)


def rope(theta=10000.0, **more):
    return dict(rope_parameters=dict(rope_type="default", rope_theta=theta) | more)


def decoder(name, model, refused="", parts=None, **settings):
    return Case(name, model, GROUPED | ROWS | settings, parts or DECODER, refused=refused)


def own_names(name, model, module, **settings):
    """Families with their own words in config.json and in module names."""
    return Case(name, model, dict(vocab_size=64) | ROWS | settings, [Part(module, "causal_self")])


MOE = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)

DECODERS = [
    decoder("llama/plain", "LlamaForCausalLM"),
    decoder("llama/bias_head_dim", "LlamaForCausalLM", attention_bias=True, head_dim=24),
    decoder("llama/linear", "LlamaForCausalLM", **rope(rope_type="linear", factor=4.0)),
    decoder("llama/yarn", "LlamaForCausalLM",
            **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    decoder("llama/llama3", "LlamaForCausalLM",
            **rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)),
    decoder("mistral/window", "MistralForCausalLM", sliding_window=4),
    decoder("mixtral/window", "MixtralForCausalLM", sliding_window=4, num_local_experts=4),
    decoder("gemma/wide", "GemmaForCausalLM", head_dim=24, num_key_value_heads=1),
    decoder("gemma2/softcap", "Gemma2ForCausalLM", head_dim=16, query_pre_attn_scalar=20, sliding_window=4,
            attn_logit_softcapping=3.0),
    decoder("gemma2/no_softcap", "Gemma2ForCausalLM", head_dim=16, query_pre_attn_scalar=16,
            sliding_window=4, attn_logit_softcapping=None),
    decoder("gemma3_text/six_layers", "Gemma3ForCausalLM", head_dim=16, sliding_window=4, num_hidden_layers=6,
            query_pre_attn_scalar=10),
    decoder("gpt_oss/sinks", "GptOssForCausalLM", head_dim=16, sliding_window=4, num_local_experts=4),
    decoder("qwen2/windows", "Qwen2ForCausalLM", use_sliding_window=True, sliding_window=4, max_window_layers=1),
    decoder("qwen2/plain", "Qwen2ForCausalLM"),
    decoder("qwen2_moe/plain", "Qwen2MoeForCausalLM", **MOE, shared_expert_intermediate_size=32),
    decoder("qwen2_moe/no_bias", "Qwen2MoeForCausalLM", **MOE, shared_expert_intermediate_size=32, qkv_bias=False,
            use_sliding_window=True, sliding_window=4, max_window_layers=1),
    decoder("qwen3/norm", "Qwen3ForCausalLM", head_dim=16),
    decoder("qwen3/bias", "Qwen3ForCausalLM", head_dim=24, attention_bias=True),
    decoder("qwen3_moe/norm", "Qwen3MoeForCausalLM", head_dim=24, **MOE),
    decoder("qwen3_moe/windows", "Qwen3MoeForCausalLM", **MOE, attention_bias=True, use_sliding_window=True,
            sliding_window=4, max_window_layers=1),
    decoder("arcee/plain", "ArceeForCausalLM"),
    decoder("arcee/bias_yarn", "ArceeForCausalLM", attention_bias=True, head_dim=24,
            **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)),
    decoder("apertus/norm", "ApertusForCausalLM"),
    decoder("apertus/bias_llama3", "ApertusForCausalLM", attention_bias=True,
            **rope(5000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)),
    decoder("ernie4_5/plain", "Ernie4_5ForCausalLM", head_dim=16),
    decoder("ernie4_5/bias", "Ernie4_5ForCausalLM", head_dim=24, use_bias=True),
    decoder("exaone4/windows", "Exaone4ForCausalLM", num_hidden_layers=4, sliding_window=4, sliding_window_pattern=4),
    decoder("exaone4/no_window", "Exaone4ForCausalLM", sliding_window=None, layer_types=["full_attention"] * 2),
    decoder("granite/multiplier", "GraniteForCausalLM", attention_multiplier=0.3),
    decoder("granitemoe/multiplier", "GraniteMoeForCausalLM", attention_multiplier=0.3, num_local_experts=4,
            num_experts_per_tok=2),
    decoder("granitemoe/bias", "GraniteMoeForCausalLM", attention_bias=True, num_local_experts=4,
            num_experts_per_tok=2),
    decoder("nemotron/partial", "NemotronForCausalLM"),
    decoder("nemotron/bias", "NemotronForCausalLM", attention_bias=True, head_dim=24,
            **rope(partial_rotary_factor=0.25)),
    decoder("olmoe/norm", "OlmoeForCausalLM", num_experts=4, num_experts_per_tok=2),
    decoder("olmoe/bias", "OlmoeForCausalLM", num_experts=4, num_experts_per_tok=2, attention_bias=True),
    decoder("olmoe/clip", "OlmoeForCausalLM", "clip_qkv", num_experts=4, num_experts_per_tok=2, clip_qkv=0.7),
    decoder("olmo/clip", "OlmoForCausalLM", clip_qkv=0.7),
    decoder("olmo2/row_norm", "Olmo2ForCausalLM"),
    decoder("olmo3/windows", "Olmo3ForCausalLM", num_hidden_layers=4, sliding_window=4),
    decoder("phimoe/plain", "PhimoeForCausalLM", num_local_experts=4),
    decoder("phimoe/bias_window", "PhimoeForCausalLM", num_local_experts=4, attention_bias=True, sliding_window=4),
    decoder("phi/norm", "PhiForCausalLM", qk_layernorm=True, **rope(partial_rotary_factor=0.5)),
    decoder("phi3/window", "Phi3ForCausalLM", sliding_window=4),
    decoder("seed_oss/plain", "SeedOssForCausalLM", head_dim=16),
    decoder("seed_oss/no_bias", "SeedOssForCausalLM", head_dim=24, attention_bias=False, attention_out_bias=True),
    decoder("stablelm/partial", "StableLmForCausalLM"),
    decoder("stablelm/bias_norm", "StableLmForCausalLM", use_qkv_bias=True, qk_layernorm=True,
            **rope(partial_rotary_factor=0.5)),
    decoder("starcoder2/bias_window", "Starcoder2ForCausalLM", sliding_window=4),
    decoder("starcoder2/no_bias", "Starcoder2ForCausalLM", use_bias=False, sliding_window=None),
    decoder("cohere/norm", "CohereForCausalLM", use_qk_norm=True),
    decoder("cohere2/windows", "Cohere2ForCausalLM", num_hidden_layers=4, sliding_window=4),
    decoder("glm4/partial", "Glm4ForCausalLM", head_dim=16),
    decoder("helium/plain", "HeliumForCausalLM", head_dim=16),
    decoder("smollm3/nope", "SmolLM3ForCausalLM", num_hidden_layers=4),
    decoder("deepseek_v3/latent", "DeepseekV3ForCausalLM", num_key_value_heads=4, q_lora_rank=24, kv_lora_rank=16,
            qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, first_k_dense_replace=2),
    decoder("deepseek_v2/latent", "DeepseekV2ForCausalLM", num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=16,
            qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10, first_k_dense_replace=2),
    decoder("ministral/windows", "MinistralForCausalLM", head_dim=16, sliding_window=4),
    decoder("phi3/longrope", "Phi3ForCausalLM", original_max_position_embeddings=8, max_position_embeddings=64,
            **rope(rope_type="longrope", short_factor=[1.0, 1.1] * 4, long_factor=[1.5, 3.0] * 4)),
    decoder("hunyuan_v1_dense/norm", "HunYuanDenseV1ForCausalLM", head_dim=16),
    decoder("nanochat/backwards", "NanoChatForCausalLM"),
    decoder("bitnet/sub_norm", "BitNetForCausalLM"),
    decoder("diffllama/difference", "DiffLlamaForCausalLM"),
    Case("persimmon/norm", "PersimmonForCausalLM", SMALL | ROWS | dict(qk_layernorm=True), DECODER),
    Case("persimmon/no_norm", "PersimmonForCausalLM", SMALL | ROWS | dict(qk_layernorm=False), DECODER),
    decoder("qwen3_next/gate", "Qwen3NextForCausalLM", head_dim=16, **MOE, num_hidden_layers=4),
    decoder("llama4/chunks", "Llama4ForCausalLM", head_dim=16, num_hidden_layers=4, attention_chunk_size=5,
            num_local_experts=2, intermediate_size_mlp=32, moe_layers=[], attn_scale=0.2, floor_scale=4),
    decoder("jetmoe/routed", "JetMoeForCausalLM", parts=[Part(r"layers\.(\d+)\.self_attention$", "causal_self")],
            kv_channels=16, num_local_experts=3, num_experts_per_tok=2),
    own_names("gpt2/by_layer", "GPT2LMHeadModel", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4, n_positions=64,
              scale_attn_by_inverse_layer_idx=True),
    own_names("gpt2/unscaled", "GPT2LMHeadModel", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4, n_positions=64,
              scale_attn_weights=False),
    own_names("gpt_bigcode/one_kv_head", "GPTBigCodeForCausalLM", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4,
              n_positions=64, multi_query=True),
    own_names("gpt_bigcode/all_kv_heads", "GPTBigCodeForCausalLM", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4,
              n_positions=64, multi_query=False),
    own_names("gptj/plain", "GPTJForCausalLM", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4, n_positions=64,
              rotary_dim=8),
    own_names("codegen/plain", "CodeGenForCausalLM", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4,
              n_positions=64, rotary_dim=8),
    own_names("gpt_neo/local", "GPTNeoForCausalLM", r"h\.(\d+)\.attn\.attention$", hidden_size=64, num_layers=2,
              num_heads=4, max_position_embeddings=64, window_size=4, attention_types=[[["global", "local"], 1]]),
    own_names("gpt_neox/partial", "GPTNeoXForCausalLM", r"layers\.(\d+)\.attention$", **SMALL),
    own_names("gpt_neox/no_bias", "GPTNeoXForCausalLM", r"layers\.(\d+)\.attention$", **SMALL, attention_bias=False),
    own_names("falcon/multi_query", "FalconForCausalLM", r"h\.(\d+)\.self_attention$", hidden_size=64,
              num_hidden_layers=2, num_attention_heads=4),
    own_names("falcon/grouped", "FalconForCausalLM", r"h\.(\d+)\.self_attention$", hidden_size=64,
              num_hidden_layers=2, num_attention_heads=4, new_decoder_architecture=True, num_kv_heads=2, bias=True),
    own_names("falcon/all_kv_heads", "FalconForCausalLM", r"h\.(\d+)\.self_attention$", hidden_size=64,
              num_hidden_layers=2, num_attention_heads=4, multi_query=False),
    Case("bloom/alibi", "BloomForCausalLM", dict(vocab_size=64, hidden_size=48, n_layer=2, n_head=6, **ROWS),
         [Part(r"h\.(\d+)\.self_attention$", "causal_self", "h.#.self_attention.dense")]),  # adds the residual itself
    own_names("mpt/clip", "MptForCausalLM", r"blocks\.(\d+)\.attn$", d_model=64, n_layers=2, n_heads=4, max_seq_len=64,
              attn_config=dict(clip_qkv=0.7, alibi=True)),
    own_names("dbrx/clip", "DbrxForCausalLM", r"blocks\.(\d+)\.norm_attn_norm\.attn$", d_model=64, n_layers=2,
              n_heads=4, max_seq_len=64, attn_config=dict(clip_qkv=0.7, kv_n_heads=2, rope_theta=10000.0),
              ffn_config=dict(ffn_hidden_size=32, moe_num_experts=2, moe_top_k=1)),
    decoder("vaultgemma/softcap", "VaultGemmaForCausalLM", head_dim=16, sliding_window=4, query_pre_attn_scalar=20),
    decoder("granitemoeshared/multiplier", "GraniteMoeSharedForCausalLM", attention_multiplier=0.3,
            num_local_experts=4, num_experts_per_tok=2, shared_intermediate_size=32),
    decoder("flex_olmo/row_norm", "FlexOlmoForCausalLM", num_experts=4, num_experts_per_tok=2),
    decoder("glm/partial", "GlmForCausalLM", head_dim=16),
    decoder("glm4_moe/norm", "Glm4MoeForCausalLM", head_dim=16, use_qk_norm=True, attention_bias=True,
            moe_intermediate_size=32, n_routed_experts=4, num_experts_per_tok=2),
    decoder("hunyuan_v1_moe/norm", "HunYuanMoEV1ForCausalLM", head_dim=16, num_experts=2, moe_topk=1),
    decoder("cwm/windows", "CwmForCausalLM", head_dim=16, num_hidden_layers=4, sliding_window=4),
    decoder("ernie4_5_moe/bias", "Ernie4_5_MoeForCausalLM", use_bias=True, moe_num_experts=2, moe_k=1,
            moe_intermediate_size=32),
    own_names("imagegpt/plain", "ImageGPTForCausalImageModeling", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4,
              n_positions=64),
    own_names("openai-gpt/plain", "OpenAIGPTLMHeadModel", r"h\.(\d+)\.attn$", n_embd=64, n_layer=2, n_head=4,
              n_positions=64),
    Case("biogpt/plain", "BioGptForCausalLM", SMALL | ROWS, DECODER),
    Case("opt/bias", "OPTForCausalLM",
         dict(hidden_size=64, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, vocab_size=64,
              max_position_embeddings=64, word_embed_proj_dim=64) | ROWS, DECODER),
]

BERT_SETTINGS = SMALL | dict(pad_token_id=0, max_position_embeddings=66)


def bert(name, model, parts=BERT, **settings):
    return Case(name, model, BERT_SETTINGS | settings, parts)


VIT = dict(hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, image_size=16,
           patch_size=4)
VIT_PARTS = [Part(r"layers?\.(\d+)\.attention$", "bidirectional_self")]

ENCODERS = [
    bert("bert/plain", "BertForMaskedLM"),
    bert("roberta/plain", "RobertaForMaskedLM"),
    bert("camembert/plain", "CamembertForMaskedLM"),
    bert("xlm-roberta/plain", "XLMRobertaForMaskedLM"),
    bert("electra/plain", "ElectraForMaskedLM", embedding_size=32),
    bert("electra/wide", "ElectraModel", embedding_size=64),
    bert("albert/one_group", "AlbertForMaskedLM",
         [Part(r"albert_layer_groups\.0\.albert_layers\.0\.attention$", "bidirectional_self",
               "encoder.albert_layer_groups.0.albert_layers.0.attention.dense")], embedding_size=32),
    bert("albert/two_groups", "AlbertForMaskedLM",
         [Part(r"albert_layer_groups\.(\d+)\.albert_layers\.0\.attention$", "bidirectional_self",
               "encoder.albert_layer_groups.#.albert_layers.0.attention.dense")],
         embedding_size=32, num_hidden_groups=2),
    bert("mpnet/bucketed_bias", "MPNetForMaskedLM",
         [Part(r"encoder\.layer\.(\d+)\.attention\.attn$", "bidirectional_self")]),
    bert("data2vec-text/plain", "Data2VecTextModel"),
    bert("ernie/plain", "ErnieModel"),
    Case("eurobert/grouped", "EuroBertModel", GROUPED | ROWS, [Part(r"layers\.(\d+)\.self_attn$", "bidirectional_self")]),
    Case("distilbert/plain", "DistilBertForMaskedLM",
         dict(dim=64, hidden_dim=48, n_layers=2, n_heads=4, vocab_size=64, max_position_embeddings=64),
         [Part(r"layer\.(\d+)\.attention$", "bidirectional_self")]),
    bert("modernbert/windows", "ModernBertForMaskedLM", [Part(r"layers\.(\d+)\.attn$", "bidirectional_self")],
         num_hidden_layers=4, local_attention=6, **ROWS, cls_token_id=1, sep_token_id=2),
    Case("vit/bias", "ViTForImageClassification", VIT, VIT_PARTS, "image"),
    Case("vit/no_bias", "ViTForImageClassification", VIT | dict(qkv_bias=False), VIT_PARTS, "image"),
    Case("deit/bias", "DeiTForImageClassification", VIT, VIT_PARTS, "image"),
    Case("deit/no_bias", "DeiTForImageClassification", VIT | dict(qkv_bias=False), VIT_PARTS, "image"),
    Case("dinov2/bias", "Dinov2ForImageClassification", VIT, VIT_PARTS, "image"),
    Case("dinov2/no_bias", "Dinov2Model", VIT | dict(qkv_bias=False), VIT_PARTS, "image"),
    Case("dinov2_with_registers/bias", "Dinov2WithRegistersModel", VIT, VIT_PARTS, "image"),
    Case("ijepa/bias", "IJepaModel", VIT, VIT_PARTS, "image"),
    Case("vit_msn/bias", "ViTMSNModel", VIT, VIT_PARTS, "image"),
    Case("yolos/bias", "YolosModel", VIT | dict(image_size=[16, 16]), VIT_PARTS, "image"),
    Case("vit_mae/bias", "ViTMAEModel", VIT | dict(mask_ratio=0.0), VIT_PARTS, "image"),
    Case("siglip/two_towers", "SiglipModel",
         dict(text_config=SMALL | dict(projection_size=64), vision_config=VIT),
         [Part(r"text_model\..*layers\.(\d+)\.self_attn$", "bidirectional_self", side="text"),
          Part(r"vision_model\..*layers\.(\d+)\.self_attn$", "bidirectional_self", side="vision")], "image_text"),
    Case("clip/two_towers", "CLIPModel",
         dict(text_config=SMALL | dict(projection_dim=32, eos_token_id=2, bos_token_id=1, pad_token_id=1),
              vision_config=VIT | dict(projection_dim=32), projection_dim=32),
         [Part(r"text_model\..*layers\.(\d+)\.self_attn$", "causal_self", side="text"),
          Part(r"vision_model\..*layers\.(\d+)\.self_attn$", "bidirectional_self", side="vision")], "image_text"),
]

AUDIO = dict(hidden_size=64, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, conv_dim=(16, 16),
             conv_stride=(5, 4), conv_kernel=(10, 8), num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
             vocab_size=32)
AUDIO_PARTS = [Part(r"encoder\.layers\.(\d+)\.attention$", "bidirectional_self")]

OTHERS = [
    Case("wav2vec2/plain", "Wav2Vec2ForCTC", AUDIO, AUDIO_PARTS, "audio"),
    Case("wav2vec2/stable_norm", "Wav2Vec2Model", AUDIO | dict(do_stable_layer_norm=True, feat_extract_norm="layer"),
         AUDIO_PARTS, "audio"),
    Case("hubert/plain", "HubertForCTC", AUDIO, AUDIO_PARTS, "audio"),
    Case("unispeech/plain", "UniSpeechModel", AUDIO, AUDIO_PARTS, "audio"),
    Case("unispeech-sat/plain", "UniSpeechSatModel", AUDIO, AUDIO_PARTS, "audio"),
    Case("data2vec-audio/plain", "Data2VecAudioModel", AUDIO | dict(num_conv_pos_embeddings=2), AUDIO_PARTS, "audio"),
    Case("whisper/plain", "WhisperForConditionalGeneration",
         PAIR_SIZES | dict(num_mel_bins=8, max_source_positions=20, max_target_positions=64, suppress_tokens=None,
                           begin_suppress_tokens=None), PAIR, "spectrum"),
    Case("bart/plain", "BartForConditionalGeneration", PAIR_SIZES, PAIR, "text_pair"),
    Case("mbart/plain", "MBartForConditionalGeneration", PAIR_SIZES, PAIR, "text_pair"),
    Case("marian/plain", "MarianMTModel", PAIR_SIZES, PAIR, "text_pair"),
    Case("m2m_100/plain", "M2M100ForConditionalGeneration", PAIR_SIZES, PAIR, "text_pair"),
    Case("pegasus/plain", "PegasusForConditionalGeneration", PAIR_SIZES, PAIR, "text_pair"),
    Case("plbart/plain", "PLBartForConditionalGeneration", PAIR_SIZES, PAIR, "text_pair"),
    Case("blenderbot/plain", "BlenderbotForConditionalGeneration", PAIR_SIZES, PAIR, "text_pair"),
    Case("blenderbot-small/plain", "BlenderbotSmallForConditionalGeneration", PAIR_SIZES, PAIR, "text_pair"),
] + [
    Case(name + "/wide", model,
         dict(d_model=64, d_kv=12, num_heads=4, d_ff=48, num_layers=2, num_decoder_layers=3, vocab_size=64,
              relative_attention_num_buckets=8, relative_attention_max_distance=12, decoder_start_token_id=1) | ROWS,
         [Part(r"encoder\.block\.(\d+)\.layer\.0\.SelfAttention$", "bidirectional_self", side="encoder"),
          Part(r"decoder\.block\.(\d+)\.layer\.0\.SelfAttention$", "causal_self", side="decoder"),
          Part(r"decoder\.block\.(\d+)\.layer\.1\.EncDecAttention$", "cross", side="decoder")], "text_pair")
    for name, model in (("t5", "T5ForConditionalGeneration"), ("mt5", "MT5ForConditionalGeneration"),
                        ("umt5", "UMT5ForConditionalGeneration"))
]

CASES: list[Any] = DECODERS + ENCODERS + OTHERS
