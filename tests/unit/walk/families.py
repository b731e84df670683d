"""Tensors of families: "NAME IN GGUF | NAME IN SAFETENSORS | SHAPE [| TYPE IN GGUF]", "-" where a
container has none. "B." is "blk.LAYER.", "M." the prefix of the model, "L." that of a layer. {e} is
an expert: safetensors have a tensor for each, GGUF one of all. "[CONDITION]" in front is Python
over the names of a checkpoint (names.py), with i for the layer. Shapes are expressions of these."""

ENDS = """
token_embd.weight | M.embed_tokens.weight | V D
output_norm.weight | M.norm.weight | D
[untied] output.weight | HEAD | V D
[stored_head] - | HEAD | V D
"""

NORMS = """
B.attn_norm.weight | L.input_layernorm.weight | D
B.ffn_norm.weight | L.post_attention_layernorm.weight | D
"""

ATTENTION = """
B.attn_q.weight | L.self_attn.q_proj.weight | H*hd D
B.attn_k.weight | L.self_attn.k_proj.weight | K*hd D
B.attn_v.weight | L.self_attn.v_proj.weight | K*hd D
B.attn_output.weight | L.self_attn.o_proj.weight | D H*hd
"""

FUSED_QKV = """
B.attn_qkv.weight | L.self_attn.qkv_proj.weight | (H+2*K)*hd D
B.attn_output.weight | L.self_attn.o_proj.weight | D H*hd
"""

QKV_BIASES = """
B.attn_q.bias | L.self_attn.q_proj.bias | H*hd
B.attn_k.bias | L.self_attn.k_proj.bias | K*hd
B.attn_v.bias | L.self_attn.v_proj.bias | K*hd
"""

QK_NORMS = """
B.attn_q_norm.weight | L.self_attn.q_norm.weight | hd
B.attn_k_norm.weight | L.self_attn.k_norm.weight | hd
"""

QK_NORMS_OVER_ALL = """
B.attn_q_norm.weight | L.self_attn.q_norm.weight | H*hd
B.attn_k_norm.weight | L.self_attn.k_norm.weight | K*hd
"""

SWIGLU = """
[dense(i)] B.ffn_gate.weight | L.mlp.gate_proj.weight | F D
[dense(i)] B.ffn_up.weight | L.mlp.up_proj.weight | F D
[dense(i)] B.ffn_down.weight | L.mlp.down_proj.weight | D F
"""

FUSED_SWIGLU = """
B.ffn_up.weight | L.mlp.gate_up_proj.weight | 2*F D
B.ffn_down.weight | L.mlp.down_proj.weight | D F
"""

EXPERTS = """
[not dense(i)] B.ffn_gate_inp.weight | L.mlp.gate.weight | E D
[not dense(i)] B.ffn_gate_exps.weight | L.mlp.experts.{e}.gate_proj.weight | Fe D
[not dense(i)] B.ffn_up_exps.weight | L.mlp.experts.{e}.up_proj.weight | Fe D
[not dense(i)] B.ffn_down_exps.weight | L.mlp.experts.{e}.down_proj.weight | D Fe
"""

SHARED_EXPERT = """
[not dense(i)] B.ffn_gate_shexp.weight | L.mlp.shared_experts.gate_proj.weight | Fs D
[not dense(i)] B.ffn_up_shexp.weight | L.mlp.shared_experts.up_proj.weight | Fs D
[not dense(i)] B.ffn_down_shexp.weight | L.mlp.shared_experts.down_proj.weight | D Fs
"""

SELECTION_BIAS = """
[not dense(i)] B.exp_probs_b.bias | L.mlp.gate.e_score_correction_bias | E | F32 F32
"""

# A draft block after the last layer, of which a layer has all tensors: i counts it.
DRAFT_OF_DEEPSEEK = """
[i == n_layers] B.nextn.embed_tokens.weight | L.embed_tokens.weight | V D
[i == n_layers] B.nextn.shared_head_head.weight | L.shared_head.head.weight | V D
[i == n_layers] B.nextn.eh_proj.weight | L.eh_proj.weight | D 2*D
[i == n_layers] B.nextn.enorm.weight | L.enorm.weight | D
[i == n_layers] B.nextn.hnorm.weight | L.hnorm.weight | D
[i == n_layers] B.nextn.shared_head_norm.weight | L.shared_head.norm.weight | D
"""

GEMMA_NORMS = """
B.attn_norm.weight | L.input_layernorm.weight | D
B.post_attention_norm.weight | L.post_attention_layernorm.weight | D
B.ffn_norm.weight | L.pre_feedforward_layernorm.weight | D
B.post_ffw_norm.weight | L.post_feedforward_layernorm.weight | D
"""

# Layers with a window and those that see all rows differ; last ones have no k and v in GGUF.
GEMMA4 = """
B.attn_q.weight | L.self_attn.q_proj.weight | H*dim(i) D
B.attn_k.weight | L.self_attn.k_proj.weight | heads(i)*dim(i) D
[local(i) or not same_kv] B.attn_v.weight | L.self_attn.v_proj.weight | heads(i)*dim(i) D
B.attn_output.weight | L.self_attn.o_proj.weight | D H*dim(i)
B.attn_q_norm.weight | L.self_attn.q_norm.weight | dim(i)
B.attn_k_norm.weight | L.self_attn.k_norm.weight | dim(i)
B.layer_output_scale.weight | L.layer_scalar | 1
B.ffn_gate.weight | L.mlp.gate_proj.weight | width(i) D
B.ffn_up.weight | L.mlp.up_proj.weight | width(i) D
B.ffn_down.weight | L.mlp.down_proj.weight | D width(i)
rope_freqs.weight | - | dim(L-1)//2 | F32
[P] per_layer_token_embd.weight | M.embed_tokens_per_layer.weight | V L*P
[P] per_layer_model_proj.weight | M.per_layer_model_projection.weight | L*P D
[P] per_layer_proj_norm.weight | M.per_layer_projection_norm.weight | P
[P] B.inp_gate.weight | L.per_layer_input_gate.weight | P D
[P] B.proj.weight | L.per_layer_projection.weight | D P
[P] B.post_norm.weight | L.post_per_layer_input_norm.weight | D
[E] B.ffn_gate_inp.weight | L.router.proj.weight | E D
[E] B.ffn_gate_inp.scale | L.router.scale | D | F32
[E] B.ffn_gate_up_exps.weight | L.experts.gate_up_proj | E 2*Fe D
[E] B.ffn_down_exps.weight | L.experts.down_proj | E D Fe
[E] B.ffn_down_exps.scale | L.router.per_expert_scale | E | F32
[E] B.pre_ffw_norm_2.weight | L.pre_feedforward_layernorm_2.weight | D
[E] B.post_ffw_norm_1.weight | L.post_feedforward_layernorm_1.weight | D
[E] B.post_ffw_norm_2.weight | L.post_feedforward_layernorm_2.weight | D
"""

GPT_OSS = """
B.attn_norm.weight | L.input_layernorm.weight | D
B.post_attention_norm.weight | L.post_attention_layernorm.weight | D
B.attn_sinks.weight | L.self_attn.sinks | H | F32
B.attn_output.bias | L.self_attn.o_proj.bias | D
B.ffn_gate_inp.weight | L.mlp.router.weight | E D
B.ffn_gate_inp.bias | L.mlp.router.bias | E
- | L.mlp.experts.gate_up_proj_blocks | E 2*Fe D//32 16 | - U8
- | L.mlp.experts.gate_up_proj_scales | E 2*Fe D//32 | - U8
- | L.mlp.experts.gate_up_proj_bias | E 2*Fe
- | L.mlp.experts.down_proj_blocks | E D Fe//32 16 | - U8
- | L.mlp.experts.down_proj_scales | E D Fe//32 | - U8
B.ffn_down_exps.bias | L.mlp.experts.down_proj_bias | E D | F32
B.ffn_gate_exps.weight | - | E Fe D | MXFP4
B.ffn_up_exps.weight | - | E Fe D | MXFP4
B.ffn_down_exps.weight | - | E D Fe | MXFP4
B.ffn_gate_exps.bias | - | E Fe | F32
B.ffn_up_exps.bias | - | E Fe | F32
"""

# The gate of an expert is w1, up is w3.
EXPERTS_OF_MIXTRAL = """
B.ffn_gate_inp.weight | L.block_sparse_moe.gate.weight | E D
B.ffn_gate_exps.weight | L.block_sparse_moe.experts.{e}.w1.weight | Fe D
B.ffn_up_exps.weight | L.block_sparse_moe.experts.{e}.w3.weight | Fe D
B.ffn_down_exps.weight | L.block_sparse_moe.experts.{e}.w2.weight | D Fe
[routing_bias] B.exp_probs_b.bias | L.block_sparse_moe.e_score_correction_bias | E | F32 F32
"""

QWEN35 = """
B.attn_norm.weight | L.input_layernorm.weight | D
B.post_attention_norm.weight | L.post_attention_layernorm.weight | D
[full(i)] B.attn_q.weight | L.self_attn.q_proj.weight | 2*H*hd D
[full(i)] B.attn_k.weight | L.self_attn.k_proj.weight | K*hd D
[full(i)] B.attn_v.weight | L.self_attn.v_proj.weight | K*hd D
[full(i)] B.attn_output.weight | L.self_attn.o_proj.weight | D H*hd
[full(i)] B.attn_q_norm.weight | L.self_attn.q_norm.weight | hd
[full(i)] B.attn_k_norm.weight | L.self_attn.k_norm.weight | hd
[not full(i)] B.attn_qkv.weight | QKV | 2*Hk*dk+Hv*dv D
[not full(i)] B.attn_gate.weight | Z | Hv*dv D
[not full(i) and qkvz] - | L.linear_attn.in_proj_qkvz.weight | 2*(Hk*dk+Hv*dv) D
[not full(i) and qkvz] B.ssm_ba.weight | L.linear_attn.in_proj_ba.weight | 2*Hv D
[not full(i) and not qkvz] B.ssm_alpha.weight | L.linear_attn.in_proj_a.weight | Hv D
[not full(i) and not qkvz] B.ssm_beta.weight | L.linear_attn.in_proj_b.weight | Hv D
[not full(i)] B.ssm_conv1d.weight | - | 2*Hk*dk+Hv*dv 4 | F32
[not full(i)] - | L.linear_attn.conv1d.weight | 2*Hk*dk+Hv*dv 1 4
[not full(i)] B.ssm_a | L.linear_attn.A_log | Hv | F32 F32
[not full(i)] B.ssm_dt.bias | L.linear_attn.dt_bias | Hv
[not full(i)] B.ssm_norm.weight | L.linear_attn.norm.weight | dv | F32 F32
[not full(i)] B.ssm_out.weight | L.linear_attn.out_proj.weight | D Hv*dv
"""

QWEN35_EXPERTS = """
B.ffn_gate_inp.weight | L.mlp.gate.weight | E D
[not qkvz] - | L.mlp.experts.gate_up_proj | E 2*Fe D
[not qkvz] - | L.mlp.experts.down_proj | E D Fe
[not qkvz] B.ffn_gate_exps.weight | - | E Fe D
[not qkvz] B.ffn_up_exps.weight | - | E Fe D
[not qkvz] B.ffn_down_exps.weight | - | E D Fe
[qkvz] B.ffn_gate_exps.weight | L.mlp.experts.{e}.gate_proj.weight | Fe D
[qkvz] B.ffn_up_exps.weight | L.mlp.experts.{e}.up_proj.weight | Fe D
[qkvz] B.ffn_down_exps.weight | L.mlp.experts.{e}.down_proj.weight | D Fe
B.ffn_gate_shexp.weight | L.mlp.shared_expert.gate_proj.weight | Fs D
B.ffn_up_shexp.weight | L.mlp.shared_expert.up_proj.weight | Fs D
B.ffn_down_shexp.weight | L.mlp.shared_expert.down_proj.weight | D Fs
B.ffn_gate_inp_shexp.weight | - | D | F32
- | L.mlp.shared_expert_gate.weight | 1 D
"""

# The draft block of Qwen: in GGUF a layer after the last one.
DRAFT_OF_QWEN = """
[drafts and i == n_layers] B.nextn.eh_proj.weight | mtp.fc.weight | D 2*D
[drafts and i == n_layers] B.nextn.enorm.weight | mtp.pre_fc_norm_embedding.weight | D
[drafts and i == n_layers] B.nextn.hnorm.weight | mtp.pre_fc_norm_hidden.weight | D
[drafts and i == n_layers] B.nextn.shared_head_norm.weight | mtp.norm.weight | D
"""

VISION_OF_QWEN = """
[vision] - | model.visual.patch_embed.proj.weight | 1152 3 2 16 16
[vision] - | model.visual.patch_embed.proj.bias | 1152
[vision] - | model.visual.pos_embed.weight | 2304 1152
[vision] - | model.visual.blocks.0.attn.qkv.weight | 3456 1152
[vision] - | model.visual.blocks.0.attn.qkv.bias | 3456
[vision] - | model.visual.blocks.0.mlp.linear_fc1.weight | 4304 1152
[vision] - | model.visual.merger.linear_fc2.weight | D 4608
"""

MLA = """
[not Rq] B.attn_q.weight | L.self_attn.q_proj.weight | H*(nope+rope) D
[Rq] B.attn_q_a.weight | L.self_attn.q_a_proj.weight | Rq D
[Rq] B.attn_q_a_norm.weight | L.self_attn.q_a_layernorm.weight | Rq
[Rq] B.attn_q_b.weight | L.self_attn.q_b_proj.weight | H*(nope+rope) Rq
B.attn_kv_a_mqa.weight | L.self_attn.kv_a_proj_with_mqa.weight | R+rope D
B.attn_kv_a_norm.weight | L.self_attn.kv_a_layernorm.weight | R
- | L.self_attn.kv_b_proj.weight | H*(nope+vd) R
B.attn_k_b.weight | - | H R nope
B.attn_v_b.weight | - | H vd R
B.attn_output.weight | L.self_attn.o_proj.weight | D H*vd
"""
