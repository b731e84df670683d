"""Keys of GGUF files: "KEY = VALUE", where the value is Python over the names of a checkpoint
(names.py). Keys without a dot in front get the architecture's prefix; a value None is left out."""

COMMON = """
block_count = n_layers + (drafts if drafts_in_gguf else 0)
context_length = context
embedding_length = D
feed_forward_length = F
attention.head_count = H
attention.head_count_kv = K
attention.layer_norm_rms_epsilon = float(eps)
rope.freq_base = float(theta)
"""

HEADS = """
attention.key_length = hd
attention.value_length = hd
"""

ROTARY = """
rope.dimension_count = rotary
"""

LINEAR = """
rope.scaling.type = "linear" if scaling else None
rope.scaling.factor = float(scaling["factor"]) if scaling else None
"""

YARN = """
rope.scaling.type = "yarn" if scaling else None
rope.scaling.factor = float(scaling["factor"]) if scaling else None
rope.scaling.original_context_length = original
rope.scaling.yarn_beta_fast = float(scaling.get("beta_fast", 32)) if scaling else None
rope.scaling.yarn_beta_slow = float(scaling.get("beta_slow", 1)) if scaling else None
"""

DRAFTS = """
nextn_predict_layers = drafts if drafts_in_gguf else None
"""

EXPERTS = """
expert_count = E
expert_used_count = used
"""

EXPERT_WIDTH = """
expert_feed_forward_length = Fe
"""

SIGMOID = """
expert_gating_func = 2
"""

GROUPS = """
expert_group_count = config.get("n_group")
expert_group_used_count = config.get("topk_group")
"""

SHARED = """
expert_shared_count = config["n_shared_experts"]
expert_weights_scale = float(config.get("routed_scaling_factor", 1.0))
expert_weights_norm = config.get("norm_topk_prob") or None
leading_dense_block_count = config["first_k_dense_replace"]
"""

MLA = """
attention.q_lora_rank = Rq
attention.kv_lora_rank = R
attention.key_length = R + rope
attention.value_length = R
attention.key_length_mla = nope + rope
attention.value_length_mla = vd
rope.dimension_count = rope
rope.scaling.yarn_log_multiplier = 0.1 * scaling["mscale_all_dim"] if scaling else None
vocab_size = V
"""

WINDOW = """
attention.sliding_window = window
"""

PATTERN = """
attention.sliding_window_pattern = [local(i) for i in range(n_layers)]
"""

GEMMA2 = """
attn_logit_softcapping = 50.0
final_logit_softcapping = 30.0
"""

GEMMA4 = """
attention.key_length = config["global_head_dim"]
attention.value_length = config["global_head_dim"]
attention.key_length_swa = hd
attention.value_length_swa = hd
attention.shared_kv_layers = shared
embedding_length_per_layer_input = P
rope.dimension_count = config["global_head_dim"]
rope.dimension_count_swa = hd
rope.freq_base_swa = 10000.0
final_logit_softcapping = 30.0
feed_forward_length = [width(i) for i in range(n_layers)] if wide else F
attention.head_count_kv = [heads(i) for i in range(n_layers)] if Kg else K
"""

GRANITE = """
attention.scale = float(config["attention_multiplier"])
embedding_scale = float(config["embedding_multiplier"])
residual_scale = float(config["residual_multiplier"])
logit_scale = float(config["logits_scaling"])
vocab_size = V
rope.dimension_count = hd
"""

MAMBA = """
ssm.conv_kernel = 4
ssm.state_size = state
ssm.group_count = groups
ssm.inner_size = inner
ssm.time_step_rank = ssm
rope.scaling.finetuned = False
attention.head_count_kv = [K if attention(i) else 0 for i in range(n_layers)]
"""

QWEN35 = """
ssm.conv_kernel = 4
ssm.state_size = dk
ssm.group_count = Hk
ssm.time_step_rank = Hv
ssm.inner_size = Hv*dv
full_attention_interval = 4
rope.dimension_count = hd // 4
"""

SECTIONS = """
rope.dimension_sections = [11, 11, 10, 0]
"""

KDA = """
attention.head_count_kv = [1 if full(i) else 0 for i in range(n_layers)]
ssm.conv_kernel = 4
kda.head_dim = vd
"""

LFM2 = """
attention.head_count_kv = [K if full(i) else 0 for i in range(n_layers)]
shortconv.l_cache = 3
vocab_size = V
"""
