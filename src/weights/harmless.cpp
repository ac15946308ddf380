#include "weights/harmless.h"

namespace headwise {

const std::string_view kHarmlessAnywhere =
    // bookkeeping
    "architectures transformers_version torch_dtype dtype use_cache auto_map tokenizer_class init_device "
    "transformers.js_config unsloth_version unsloth_fixed sentence_transformers model_max_length "
    "cache_implementation "
    // model wrapper
    "return_dict return_dict_in_generate output_hidden_states output_attentions output_past torchscript "
    "use_bfloat16 "
    "tie_word_embeddings tie_encoder_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size "
    "chunk_size_feed_forward gradient_checkpointing use_return_dict fuse_cross_entropy "
    // training
    "initializer_range initializer_factor init_std initializer_cutoff_factor attention_dropout "
    "attention_probs_dropout_prob attn_pdrop hidden_dropout_prob hidden_dropout embd_pdrop emb_pdrop "
    "embed_dropout "
    "embedding_dropout resid_pdrop resid_dropout residual_dropout dropout dropout_rate activation_dropout "
    "mlp_dropout "
    "classifier_dropout classifier_dropout_prob layerdrop encoder_layerdrop decoder_layerdrop drop_path_rate "
    "seq_classif_dropout qa_dropout final_dropout summary_first_dropout summary_last_dropout "
    // heads on top of the model
    "finetuning_task id2label label2id num_labels problem_type task_specific_params tf_legacy_loss summary_type "
    "summary_use_proj summary_activation summary_proj_to_labels classifier_activation classifier_bias "
    "classifier_pooling pooler_act pooler_output_size pooler_fc_size pooler_num_attention_heads "
    "pooler_num_fc_layers "
    "pooler_size_per_head pooler_type projection_dim logit_scale_init_value logit_scale "
    // tokens
    "vocab_size prefix bos_token_id eos_token_id pad_token_id sep_token_id mask_token_id unk_token_id "
    "cls_token_id "
    "eod_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id suppress_tokens "
    "begin_suppress_tokens bad_words_ids image_token_id image_token_index type_vocab_size max_token_id "
    // text generation
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k "
    "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "num_return_sequences output_scores exponential_decay_length_penalty remove_invalid_values "
    // norms, feed-forward stages and embeddings around the block
    "hidden_act hidden_activation activation_function activation intermediate_size mlp_bias mlp_ratio "
    "max_position_embeddings original_max_position_embeddings rms_norm_eps layer_norm_eps layer_norm_epsilon "
    "norm_eps "
    "norm_epsilon norm_bias pretraining_tp embedding_size embedding_multiplier logits_scaling residual_multiplier "
    "final_logit_softcapping scale_embedding use_parallel_residual lm_head_bias decoder_bias max_sequence_length "
    // mixtures of experts in the feed-forward stage
    "num_experts num_experts_per_tok num_local_experts n_routed_experts n_shared_experts n_group topk_group "
    "topk_method moe_intermediate_size shared_expert_intermediate_size first_k_dense_replace moe_layer_freq "
    "norm_topk_prob scoring_func routed_scaling_factor decoder_sparse_step mlp_only_layers output_router_logits "
    "router_aux_loss_coef router_jitter_noise input_jitter_noise aux_loss_alpha seq_aux ep_size aux_loss_coef "
    "num_nextn_predict_layers";

const std::string_view kHarmlessBesideText =
    "vision_config audio_config image_token_index image_token_id video_token_index video_token_id boi_token_index "
    "eoi_token_index boi_token_id eoi_token_id audio_token_id mm_tokens_per_image image_seq_length "
    "multimodal_projector_bias projector_hidden_act spatial_merge_size vision_feature_layer "
    "vision_feature_select_strategy hidden_size ignore_index";

}  // namespace headwise
