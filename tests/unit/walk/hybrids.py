"""Tensors of families with recurrent layers; the lines are explained in families.py."""

MAMBA = """
[mamba(i)] B.ssm_in.weight | L.X.in_proj.weight | 2*inner+2*groups*state+ssm D
[mamba(i)] B.ssm_conv1d.weight | - | inner+2*groups*state 4 | F32
[mamba(i)] - | L.X.conv1d.weight | inner+2*groups*state 1 4
[mamba(i)] B.ssm_conv1d.bias | L.X.conv1d.bias | inner+2*groups*state
[mamba(i)] B.ssm_a | - | ssm 1 | F32
[mamba(i)] - | L.X.A_log | ssm
[mamba(i)] B.ssm_d | - | ssm 1 | F32
[mamba(i)] - | L.X.D | ssm
[mamba(i)] B.ssm_dt.bias | L.X.dt_bias | ssm
[mamba(i)] B.ssm_norm.weight | - | groups inner//groups | F32
[mamba(i)] - | L.X.norm.weight | inner
[mamba(i)] B.ssm_out.weight | L.X.out_proj.weight | D inner
"""
FALCON_H1 = """
token_embd.weight | M.embed_tokens.weight | V D
output_norm.weight | M.final_layernorm.weight | D
output.weight | lm_head.weight | V D
B.attn_norm.weight | L.input_layernorm.weight | D
B.ffn_norm | L.pre_ff_layernorm.weight | D | F32
B.attn_q.weight | L.self_attn.q_proj.weight | H*hd D
B.attn_k.weight | L.self_attn.k_proj.weight | K*hd D
B.attn_v.weight | L.self_attn.v_proj.weight | K*hd D
B.attn_output.weight | L.self_attn.o_proj.weight | D H*hd
B.ffn_gate.weight | L.feed_forward.gate_proj.weight | F D
B.ffn_up.weight | L.feed_forward.up_proj.weight | F D
B.ffn_down.weight | L.feed_forward.down_proj.weight | D F
"""
MAMBA_OF_FALCON = "".join(line.replace("[mamba(i)] ", "").replace(".X.", ".mamba.") + "\n"
                          for line in MAMBA.splitlines() if "norm" not in line)
MAMBA_OF_GRANITE = MAMBA.replace(".X.", ".mamba.")
MAMBA_OF_NEMOTRON = MAMBA.replace(".X.", ".mixer.")

# Granite 4, dense and with experts, with and without Mamba-2.
GRANITE4 = """
[attention(i)] B.attn_q.weight | L.self_attn.q_proj.weight | H*hd D
[attention(i)] B.attn_k.weight | L.self_attn.k_proj.weight | K*hd D
[attention(i)] B.attn_v.weight | L.self_attn.v_proj.weight | K*hd D
[attention(i)] B.attn_output.weight | L.self_attn.o_proj.weight | D H*hd
- | L.shared_mlp.input_linear.weight | 2*Fs D
- | L.shared_mlp.output_linear.weight | D Fs
[not E] B.ffn_gate.weight | - | Fs D
[not E] B.ffn_up.weight | - | Fs D
[not E] B.ffn_down.weight | - | D Fs
[E] B.ffn_gate_shexp.weight | - | Fs D
[E] B.ffn_up_shexp.weight | - | Fs D
[E] B.ffn_down_shexp.weight | - | D Fs
[E] B.ffn_gate_inp.weight | L.block_sparse_moe.router.layer.weight | E D
[E] - | L.block_sparse_moe.input_linear.weight | E 2*Fe D
[E] - | L.block_sparse_moe.output_linear.weight | E D Fe
[E] B.ffn_gate_exps.weight | - | E Fe D
[E] B.ffn_up_exps.weight | - | E Fe D
[E] B.ffn_down_exps.weight | - | E D Fe
"""

NEMOTRON = """
token_embd.weight | M.embeddings.weight | V D
output_norm.weight | M.norm_f.weight | D
output.weight | lm_head.weight | V D
B.attn_norm.weight | L.norm.weight | D
[attention(i)] B.attn_q.weight | L.mixer.q_proj.weight | H*hd D
[attention(i)] B.attn_k.weight | L.mixer.k_proj.weight | K*hd D
[attention(i)] B.attn_v.weight | L.mixer.v_proj.weight | K*hd D
[attention(i)] B.attn_output.weight | L.mixer.o_proj.weight | D H*hd
[mlp(i)] B.ffn_up.weight | L.mixer.up_proj.weight | F D
[mlp(i)] B.ffn_down.weight | L.mixer.down_proj.weight | D F
[experts(i)] B.ffn_gate_inp.weight | L.mixer.gate.weight | E D
[experts(i)] B.exp_probs_b.bias | L.mixer.gate.e_score_correction_bias | E | F32 F32
[experts(i)] B.ffn_up_exps.weight | L.mixer.experts.{e}.up_proj.weight | Fe D
[experts(i)] B.ffn_down_exps.weight | L.mixer.experts.{e}.down_proj.weight | D Fe
[experts(i)] B.ffn_up_shexp.weight | L.mixer.shared_experts.up_proj.weight | Fs D
[experts(i)] B.ffn_down_shexp.weight | L.mixer.shared_experts.down_proj.weight | D Fs
"""

LFM2 = """
token_embd.weight | M.embed_tokens.weight | V D
token_embd_norm.weight | M.embedding_norm.weight | D
B.attn_norm.weight | L.operator_norm.weight | D
B.ffn_norm.weight | L.ffn_norm.weight | D
[not full(i)] B.shortconv.in_proj.weight | L.conv.in_proj.weight | 3*D D
[not full(i)] B.shortconv.conv.weight | - | D 3 | F32
[not full(i)] - | L.conv.conv.weight | D 1 3
[not full(i)] B.shortconv.out_proj.weight | L.conv.out_proj.weight | D D
[full(i)] B.attn_q.weight | L.self_attn.q_proj.weight | H*hd D
[full(i)] B.attn_k.weight | L.self_attn.k_proj.weight | K*hd D
[full(i)] B.attn_v.weight | L.self_attn.v_proj.weight | K*hd D
[full(i)] B.attn_output.weight | L.self_attn.out_proj.weight | D H*hd
[full(i)] B.attn_q_norm.weight | L.self_attn.q_layernorm.weight | hd
[full(i)] B.attn_k_norm.weight | L.self_attn.k_layernorm.weight | hd
[dense(i)] B.ffn_gate.weight | L.feed_forward.w1.weight | F D
[dense(i)] B.ffn_up.weight | L.feed_forward.w3.weight | F D
[dense(i)] B.ffn_down.weight | L.feed_forward.w2.weight | D F
[not dense(i)] B.ffn_gate_inp.weight | L.feed_forward.gate.weight | E D
[not dense(i)] B.exp_probs_b.bias | L.feed_forward.expert_bias | E | F32 F32
[not dense(i)] B.ffn_gate_exps.weight | L.feed_forward.experts.{e}.w1.weight | Fe D
[not dense(i)] B.ffn_up_exps.weight | L.feed_forward.experts.{e}.w3.weight | Fe D
[not dense(i)] B.ffn_down_exps.weight | L.feed_forward.experts.{e}.w2.weight | D Fe
"""

KDA = """
B.attn_q.weight | L.self_attn.q_proj.weight | H*vd D
B.attn_k.weight | L.self_attn.k_proj.weight | H*vd D
B.attn_v.weight | L.self_attn.v_proj.weight | H*vd D
B.ssm_conv1d_q.weight | - | 1 H*vd 1 4 | F32
B.ssm_conv1d_k.weight | - | 1 H*vd 1 4 | F32
B.ssm_conv1d_v.weight | - | 1 H*vd 1 4 | F32
- | L.self_attn.q_conv1d.weight | H*vd 1 4
- | L.self_attn.k_conv1d.weight | H*vd 1 4
- | L.self_attn.v_conv1d.weight | H*vd 1 4
B.ssm_f_a.weight | L.self_attn.f_a_proj.weight | vd D
B.ssm_f_b.weight | L.self_attn.f_b_proj.weight | H*vd vd
B.ssm_beta.weight | L.self_attn.b_proj.weight | H D
B.ssm_g_a.weight | L.self_attn.g_a_proj.weight | vd D
B.ssm_g_b.weight | L.self_attn.g_b_proj.weight | H*vd vd
B.ssm_a | L.self_attn.A_log | 1 1 H 1 | F32 F32
B.ssm_dt.bias | L.self_attn.dt_bias | H*vd | F32 F32
B.ssm_norm.weight | L.self_attn.o_norm.weight | vd
B.attn_output.weight | L.self_attn.o_proj.weight | D H*vd
"""

# Experts of Kimi Linear: names of Mixtral, and a shared one.
EXPERTS_OF_KIMI = """
B.ffn_gate_inp.weight | L.block_sparse_moe.gate.weight | E D
B.exp_probs_b.bias | L.block_sparse_moe.gate.e_score_correction_bias | E | F32 F32
B.ffn_gate_exps.weight | L.block_sparse_moe.experts.{e}.w1.weight | Fe D
B.ffn_up_exps.weight | L.block_sparse_moe.experts.{e}.w3.weight | Fe D
B.ffn_down_exps.weight | L.block_sparse_moe.experts.{e}.w2.weight | D Fe
B.ffn_gate_shexp.weight | L.block_sparse_moe.shared_experts.gate_proj.weight | Fs D
B.ffn_up_shexp.weight | L.block_sparse_moe.shared_experts.up_proj.weight | Fs D
B.ffn_down_shexp.weight | L.block_sparse_moe.shared_experts.down_proj.weight | D Fs
"""
