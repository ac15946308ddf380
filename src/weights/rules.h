// The rules that rows of the table of families are made of: each reads its keys of config.json and writes its part of
// the plan of one layer.
#pragma once

#include "weights/config.h"
#include "weights/plan.h"

namespace headwise::rules {

// ---- which keys a layer sees. Windows W keep W keys; layer_types decides where the file has it, else the rule. ----
void window(Config&, LayerPlan&);          // sliding_window on all layers; null or 0: none
void window_if_used(Config&, LayerPlan&);  // the same, only with use_sliding_window
void window_on_even_layers(Config&, LayerPlan&);
void window_except_every_4th(Config&, LayerPlan&);
void window_except_every_4th_from_0(Config&, LayerPlan&);
void window_except_every_6th(Config&, LayerPlan&);
void window_from_max_window_layers(Config&, LayerPlan&);  // Qwen: only with use_sliding_window, from that layer on
void window_on_even_layers_below_max_window_layers(Config&, LayerPlan&);  // Qwen2-MoE, likewise
void window_where_not_rotated(Config&, LayerPlan&);                       // SmolLM3: only with use_sliding_window
void two_sided_local_attention(Config&, LayerPlan&);  // ModernBERT: |t - p| <= local_attention / 2
void gpt_neo_attention_types(Config&, LayerPlan&);
void maybe_bidirectional(Config&, LayerPlan&);   // Gemma 3: use_bidirectional_attention, halves the window
void chunks_where_rotated(Config&, LayerPlan&);  // Llama 4
void only_full_attention(Config&, LayerPlan&);   // other layers are no softmax attention

// ---- scores ----
void unscaled(Config&, LayerPlan&);  // scale 1
void scale_from_query_pre_attn_scalar(Config&, LayerPlan&);
void scale_from_attention_multiplier(Config&, LayerPlan&);
void scale_switches_of_gpt2(Config&, LayerPlan&);  // scale_attn_weights, scale_attn_by_inverse_layer_idx
void softcap_from_attn_logit_softcapping(Config&, LayerPlan&);
void clip_qkv(Config&, LayerPlan&);
void temperature_where_not_rotated(Config&, LayerPlan&);  // Llama 4
void sinks(Config&, LayerPlan&);
void alibi(Config&, LayerPlan&);
void alibi_instead_of_rotation(Config&, LayerPlan&);     // Falcon: by the key alibi, scaled with the scores
void bucketed_bias(Config&, LayerPlan&);                 // T5: table in block 0 of each stack
void bucketed_bias_of_every_layer(Config&, LayerPlan&);  // UMT5
void bucketed_bias_of_the_stack(Config&, LayerPlan&);    // MPNet

// ---- positions ----
void rotate_by_no_rope_layers(Config&, LayerPlan&);  // 1 rotates, 0 does not
void rotate_windowed_layers_only(Config&, LayerPlan&);
void rotate_unless_full_beside_windows(Config&, LayerPlan&);  // EXAONE 4
void rotary_dim(Config&, LayerPlan&);                         // GPT-J: width in columns
void rotate_backwards(Config&, LayerPlan&);                   // nanochat
void rotate_alternately_unless_told(Config&, LayerPlan&);     // DeepSeek V3: rope_interleave false is half-split

// ---- heads and projections ----
void width_is_embed_dim_over_heads(Config&, LayerPlan&);  // whatever head_dim says
void no_key_bias(Config&, LayerPlan&);
void falcon_heads(Config&, LayerPlan&);   // new_decoder_architecture, multi_query
void bigcode_heads(Config&, LayerPlan&);  // multi_query
void mpt_attn_config(Config&, LayerPlan&);
void dbrx_attn_config(Config&, LayerPlan&);
void latent_attention(Config&, LayerPlan&);
void routed_attention(Config&, LayerPlan&);
void difference_of_heads(Config&, LayerPlan&);
void norm_before_output(Config&, LayerPlan&);     // BitNet: attn_sub_norm
void gate_beside_query(Config&, LayerPlan&);      // Qwen3-Next
void qk_norm_where_rotated(Config&, LayerPlan&);  // Llama 4
void layer_groups(Config&, LayerPlan&);           // ALBERT

}  // namespace headwise::rules
