"""Models with recurrent layers; what an entry says is explained in table.py."""
import families as f
import hybrids as h
import keys as k
from table_dense import AIC, MEMORY, TRANSFORMERS, TT
from table_experts import AIC_OLD

QWEN35_KEYS = [k.COMMON, k.HEADS, k.QWEN35, k.DRAFTS]
LINEAR3 = ["linear_attention"] * 3 + ["full_attention"]


def qwen35(size, count, source, text, files=1, **more):
    n_layers, has_experts = text["num_hidden_layers"], "num_experts" in text
    arch = "qwen35moe" if has_experts else "qwen35"
    experts = [f.QWEN35_EXPERTS] if has_experts else [f.SWIGLU]
    return dict(
        name=f"Qwen/Qwen3.5-{size}", gguf=arch, pre="qwen35", count=count, source=source,
        joined=has_experts,
        kv=n_layers // 4 * text["num_key_value_heads"] * 2 * 256, files=files, drafts=1,
        family=[f.ENDS, f.QWEN35, *experts, f.DRAFT_OF_QWEN, f.VISION_OF_QWEN],
        draft_layers="mtp.layers.", drafts_in_gguf=True, prefix="model.language_model.",
        keys=[*QWEN35_KEYS, k.SECTIONS,
              *((k.EXPERTS, k.EXPERT_WIDTH, "expert_shared_feed_forward_length = Fs\n")
                if has_experts else ())],
        config=dict(
            model_type="qwen3_5_moe" if has_experts else "qwen3_5",
            tie_word_embeddings=more.get("tied", False), vision_config={"depth": 27},
            text_config=dict(
                model_type="qwen3_5_moe_text" if has_experts else "qwen3_5_text",
                attention_bias=False, attn_output_gate=True, full_attention_interval=4,
                head_dim=256, hidden_act="silu", layer_types=LINEAR3 * (n_layers // 4),
                linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16,
                linear_value_head_dim=128, max_position_embeddings=262144, mlp_only_layers=[],
                mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, rms_norm_eps=1e-6,
                vocab_size=248320, mamba_ssm_dtype="float32",
                rope_parameters=dict(
                    mrope_interleaved=True, mrope_section=[11, 11, 10], rope_type="default",
                    rope_theta=10000000, partial_rotary_factor=0.25), **text)), **more)


QWEN = [
    qwen35("0.8B", 752e6, MEMORY, dict(
        hidden_size=1024, intermediate_size=3584, linear_num_value_heads=16,
        num_attention_heads=8, num_hidden_layers=24, num_key_value_heads=2), tied=True),
    qwen35("9B", 8.95e9, TT + "Qwen3.5-9B/config.json", dict(
        hidden_size=4096, intermediate_size=12288, linear_num_value_heads=32,
        num_attention_heads=16, num_hidden_layers=32, num_key_value_heads=4), files=4),
    qwen35("27B", 26.9e9, AIC + "Qwen--Qwen3.5-27B_config.json", dict(
        hidden_size=5120, intermediate_size=17408, linear_num_value_heads=48,
        num_attention_heads=24, num_hidden_layers=64, num_key_value_heads=4), files=11),
    qwen35("35B-A3B", 34.7e9, AIC + "Qwen--Qwen3.5-35B-A3B_config.json", dict(
        hidden_size=2048, linear_num_value_heads=32, moe_intermediate_size=512,
        num_attention_heads=16, num_experts=256, num_experts_per_tok=8, num_hidden_layers=40,
        num_key_value_heads=2, shared_expert_intermediate_size=512,
        router_aux_loss_coef=0.001), files=14),
    dict(name="Qwen/Qwen3-Next-80B-A3B-Thinking", gguf="qwen3next", pre="qwen2", count=79.7e9,
         joined=True, kv=12 * 2 * 2 * 256, files=41, drafts=1, draft_layers="mtp.layers.",
         drafts_in_gguf=True,
         family=[f.ENDS, f.QWEN35, f.QWEN35_EXPERTS, f.DRAFT_OF_QWEN],
         keys=[*QWEN35_KEYS, k.EXPERTS, k.EXPERT_WIDTH,
               "expert_shared_feed_forward_length = Fs\n"],
         source=AIC_OLD + "Qwen--Qwen3-Next-80B-A3B-Thinking_config.json",
         config=dict(
             model_type="qwen3_next", decoder_sparse_step=1, full_attention_interval=4,
             head_dim=256, hidden_act="silu", hidden_size=2048, intermediate_size=5120,
             linear_conv_kernel_dim=4, linear_key_head_dim=128, linear_num_key_heads=16,
             linear_num_value_heads=32, linear_value_head_dim=128,
             max_position_embeddings=262144, mlp_only_layers=[], moe_intermediate_size=512,
             norm_topk_prob=True, num_attention_heads=16, num_experts=512,
             num_experts_per_tok=10, num_hidden_layers=48, num_key_value_heads=2,
             partial_rotary_factor=0.25, rms_norm_eps=1e-6, rope_scaling=None,
             rope_theta=10000000, shared_expert_intermediate_size=512,
             tie_word_embeddings=False, use_sliding_window=False, vocab_size=151936)),
]

KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
KIMI = dict(
    name="moonshotai/Kimi-Linear-48B-A3B-Instruct", joined=True, gguf="kimi-linear", pre="kimi-k2",
    count=49.1e9, kv=7 * (512 + 64), files=20, source=TRANSFORMERS + "kimi_linear",
    family=[f.ENDS, f.NORMS, ("full(i)", f.MLA), ("not full(i)", h.KDA), f.SWIGLU,
            ("not dense(i)", h.EXPERTS_OF_KIMI)],
    keys=[k.COMMON, k.EXPERTS, k.EXPERT_WIDTH, k.SIGMOID, k.MLA, k.KDA,
          'expert_shared_count = 1\nexpert_weights_scale = 2.446\nexpert_weights_norm = True\n'
          'leading_dense_block_count = 1\n'],
    config=dict(
        model_type="kimi_linear", first_k_dense_replace=1, head_dim=72, hidden_act="silu",
        hidden_size=2304, intermediate_size=9216, kv_lora_rank=512,
        linear_attn_config=dict(
            full_attn_layers=KIMI_FULL, head_dim=128, num_heads=32, short_conv_kernel_size=4,
            kda_layers=[i for i in range(1, 28) if i not in KIMI_FULL]),
        mla_use_nope=True, model_max_length=1048576, moe_intermediate_size=1024,
        moe_layer_freq=1, moe_renormalize=True, moe_router_activation_func="sigmoid",
        num_attention_heads=32, num_expert_group=1, num_experts=256, num_experts_per_token=8,
        num_hidden_layers=27, num_key_value_heads=32, num_nextn_predict_layers=0,
        num_shared_experts=1, q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64,
        rms_norm_eps=1e-5, rope_scaling=None, rope_theta=10000.0, routed_scaling_factor=2.446,
        tie_word_embeddings=False, topk_group=1, use_grouped_topk=True, v_head_dim=128,
        vocab_size=163840))

# No layer has a norm in Mamba-2, and all have Mamba-2 beside attention.
FALCON = dict(
    name="tiiuae/Falcon-H1-1.5B-Deep-Instruct", joined=True, gguf="falcon-h1", pre="falcon-h1",
    count=1.55e9, kv=66 * 2 * 2 * 128,
    source=TRANSFORMERS + "falcon_h1, and its documentation; factors and vocabulary " + MEMORY,
    family=[h.FALCON_H1, h.MAMBA_OF_FALCON],
    keys=[k.COMMON, k.HEADS, """
ssm.conv_kernel = 4
ssm.state_size = state
ssm.group_count = groups
ssm.inner_size = inner
ssm.time_step_rank = ssm
vocab_size = V
"""],
    config=dict(
        model_type="falcon_h1", attention_bias=False, attention_in_multiplier=1.0,
        attention_out_multiplier=0.9375, embedding_multiplier=5.656854249492381, head_dim=128,
        hidden_act="silu", hidden_size=1280, intermediate_size=3072, key_multiplier=0.390625,
        lm_head_multiplier=0.0390625, mamba_chunk_size=128, mamba_conv_bias=True, mamba_d_conv=4,
        mamba_d_head=64, mamba_d_ssm=1536, mamba_d_state=256, mamba_expand=2, mamba_n_groups=1,
        mamba_n_heads=24, mamba_norm_before_gate=False, mamba_proj_bias=False,
        mamba_rms_norm=False, max_position_embeddings=131072, mlp_bias=False,
        mlp_multipliers=[0.8838834764831844, 0.5859375], num_attention_heads=6,
        num_hidden_layers=66, num_key_value_heads=2, projectors_bias=False, rms_norm_eps=1e-5,
        rope_scaling=None, rope_theta=100000000000.0, ssm_in_multiplier=1.25,
        ssm_multipliers=[0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
        ssm_out_multiplier=0.23570226039551584, tie_word_embeddings=False, vocab_size=65536))

GRANITE_CONFIG = dict(
    model_type="granitemoehybrid", attention_bias=False, embedding_multiplier=12,
    hidden_act="silu", init_method="mup", mamba_chunk_size=256, mamba_conv_bias=True,
    mamba_d_conv=4, mamba_d_head=64, mamba_d_state=128, mamba_expand=2, mamba_n_groups=1,
    mamba_proj_bias=False, max_position_embeddings=131072, normalization_function="rmsnorm",
    num_hidden_layers=40, residual_multiplier=0.22, rms_norm_eps=1e-5, rope_scaling=None,
    rope_theta=10000, tie_word_embeddings=True, vocab_size=100352,
)
MAMBA9 = ["mamba"] * 5 + ["attention"] + ["mamba"] * 4


def granite(size, count, arch, gguf, kv, **config):
    types = config.get("layer_types", MAMBA9 * 4)
    is_hybrid, has_experts = "mamba" in types, config["num_local_experts"] > 0
    keys = [k.COMMON, k.HEADS, k.GRANITE] if not is_hybrid else [
        k.COMMON, k.HEADS, k.GRANITE, k.MAMBA, "expert_shared_feed_forward_length = Fs\n"]
    return dict(
        name=f"ibm-granite/granite-4.0-{size}", gguf=gguf, pre="dbrx", count=count, kv=kv,
        joined=True, arch=arch, family=[f.ENDS, f.NORMS, h.GRANITE4, h.MAMBA_OF_GRANITE],
        keys=[*keys, k.EXPERTS] if has_experts else keys, source=MEMORY,
        config=GRANITE_CONFIG | dict(layer_types=types) | config)


GRANITE = [
    granite("micro", 3.4e9, dict(hf="granite4", gguf="granite"), "granite", 40 * 8 * 2 * 64,
            attention_multiplier=0.015625, hidden_size=2560, intermediate_size=8192,
            layer_types=["attention"] * 40, logits_scaling=10, num_attention_heads=40,
            num_experts_per_tok=0, num_key_value_heads=8, num_local_experts=0,
            position_embedding_type="rope", shared_intermediate_size=8192, mamba_n_heads=128),
    granite("h-micro", 3.19e9, "granitehybrid", "granitehybrid", 4 * 8 * 2 * 64,
            attention_multiplier=0.015625, hidden_size=2048, intermediate_size=8192,
            logits_scaling=8, num_attention_heads=32, num_experts_per_tok=0,
            num_key_value_heads=8, num_local_experts=0, position_embedding_type="nope",
            shared_intermediate_size=8192, mamba_n_heads=64),
    granite("h-tiny", 6.94e9, "granitehybridmoe", "granitehybrid", 4 * 4 * 2 * 128,
            attention_multiplier=0.0078125, hidden_size=1536, intermediate_size=512,
            logits_scaling=6, num_attention_heads=12, num_experts_per_tok=6,
            num_key_value_heads=4, num_local_experts=64, position_embedding_type="nope",
            shared_intermediate_size=1024, mamba_n_heads=48),
    granite("h-small", 32.2e9, "granitehybridmoe", "granitehybrid", 4 * 8 * 2 * 128,
            attention_multiplier=0.0078125, hidden_size=4096, intermediate_size=768,
            logits_scaling=16, num_attention_heads=32, num_experts_per_tok=10,
            num_key_value_heads=8, num_local_experts=72, position_embedding_type="nope",
            shared_intermediate_size=1536, mamba_n_heads=128),
]

NEMOTRON_CONFIG = dict(
    model_type="nemotron_h", attention_bias=False, chunk_size=128, conv_kernel=4, expand=2,
    layer_norm_epsilon=1e-5, mamba_hidden_act="silu", mamba_proj_bias=False, mlp_bias=False,
    mlp_hidden_act="relu2", n_groups=8, residual_in_fp32=False, sliding_window=None,
    tie_word_embeddings=False, time_step_floor=0.0001, time_step_max=0.1, time_step_min=0.001,
    use_bias=False, use_conv_bias=True, use_mamba_kernels=True, vocab_size=131072,
)
WIDTHS = "feed_forward_length = [F if mlp(i) else 0 for i in range(n_layers)]\n"
NEMOTRON = [
    dict(name="nvidia/Nemotron-H-56B-Base-8K", gguf="nemotron_h", pre="tekken", count=56.1e9,
         kv=10 * 8 * 2 * 128, family=[h.NEMOTRON, h.MAMBA_OF_NEMOTRON], prefix="backbone.",
         keys=[k.COMMON, k.HEADS, k.MAMBA, WIDTHS], files=24,
         source=AIC + "nvidia--Nemotron-H-56B-Base-8K_config.json",
         config=NEMOTRON_CONFIG | dict(
             attention_head_dim=128, hidden_size=8192, intermediate_size=32768,
             hybrid_override_pattern="M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
             mamba_head_dim=64, mamba_num_heads=256, max_position_embeddings=8192,
             num_attention_heads=64, num_hidden_layers=118, num_key_value_heads=8,
             rms_norm_eps=1e-5, ssm_state_size=256, time_step_limit=[0.0, float("inf")],
             time_step_rank=512)),
    dict(name="nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", gguf="nemotron_h_moe", pre="tekken",
         joined=True, count=31.6e9, kv=6 * 2 * 2 * 128, family=[h.NEMOTRON, h.MAMBA_OF_NEMOTRON],
         prefix="backbone.", files=13,
         keys=[k.COMMON, k.HEADS, k.MAMBA, k.EXPERTS, k.EXPERT_WIDTH, WIDTHS.replace(
             "F if mlp", "Fe if experts"),
               "expert_shared_feed_forward_length = Fs\nexpert_shared_count = 1\n"
               "expert_weights_norm = True\nexpert_weights_scale = 2.5\nexpert_group_count = 1\n"
               "expert_gating_func = 2\n"],
         source=AIC + "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16_config.json",
         config=NEMOTRON_CONFIG | dict(
             head_dim=128, hidden_size=2688, intermediate_size=1856,
             hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
             mamba_head_dim=64, mamba_num_heads=64, max_position_embeddings=262144,
             moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712, n_group=1,
             n_routed_experts=128, n_shared_experts=1, norm_eps=1e-5, norm_topk_prob=True,
             num_attention_heads=32, num_experts_per_tok=6, num_hidden_layers=52,
             num_key_value_heads=2, partial_rotary_factor=1.0, rope_theta=10000,
             routed_scaling_factor=2.5, ssm_state_size=128, topk_group=1)),
]

LFM2_CONFIG = dict(
    model_type="lfm2", block_auto_adjust_ff_dim=True, block_ffn_dim_multiplier=1.0,
    block_multiple_of=256, block_norm_eps=1e-5, block_use_swiglu=True, conv_L_cache=3,
    conv_bias=False, max_position_embeddings=128000, norm_eps=1e-5, num_hidden_layers=16,
    num_key_value_heads=8, rope_theta=1000000.0, use_pos_enc=True, vocab_size=65536,
)
LFM2_LAYERS = [2, 5, 8, 10, 12, 14]
LFM2_TYPES = ["full_attention" if i in LFM2_LAYERS else "conv" for i in range(16)]
LFM2_KEYS = [k.COMMON, k.LFM2]
LFM2 = [
    dict(name="LiquidAI/LFM2-350M", gguf="lfm2", pre="lfm2", count=354e6, kv=6 * 8 * 2 * 64,
         joined=True, family=[h.LFM2], keys=LFM2_KEYS, source=MEMORY, defaults=dict(d_ffn=4608),
         config=LFM2_CONFIG | dict(
             block_dim=1024, block_ff_dim=6656, conv_dim=1024, full_attn_idxs=LFM2_LAYERS,
             hidden_size=1024, num_attention_heads=16, num_heads=16, tie_embedding=True,
             intermediate_size=6656)),
    dict(name="LiquidAI/LFM2-1.2B", gguf="lfm2", pre="lfm2", count=1.17e9, kv=6 * 8 * 2 * 64,
         family=[h.LFM2], keys=LFM2_KEYS, source=TT + "LFM2.5-VL-1.6B/config.json",
         defaults=dict(d_ffn=8192),
         config=LFM2_CONFIG | dict(
             block_dim=2048, block_ff_dim=12288, conv_dim=2048, hidden_size=2048,
             intermediate_size=12288, layer_types=LFM2_TYPES, num_attention_heads=32,
             num_heads=32)),
    dict(name="LiquidAI/LFM2-8B-A1B", gguf="lfm2moe", pre="lfm2", count=8.34e9,
         kv=6 * 8 * 2 * 64, family=[h.LFM2], files=4,
         keys=[*LFM2_KEYS, k.EXPERTS, k.EXPERT_WIDTH, k.SIGMOID,
               "leading_dense_block_count = 2\n"],
         source=TRANSFORMERS + "lfm2_moe/configuration_lfm2_moe.py",
         config=dict(
             model_type="lfm2_moe", conv_L_cache=3, conv_bias=False, hidden_size=2048,
             intermediate_size=7168, max_position_embeddings=128000, moe_intermediate_size=1792,
             layer_types=["full_attention" if i in (2, 6, 10, 14, 18, 21) else "conv"
                          for i in range(24)],
             norm_eps=1e-5, norm_topk_prob=True, num_attention_heads=32, num_dense_layers=2,
             num_experts=32, num_experts_per_tok=4, num_hidden_layers=24, num_key_value_heads=8,
             rope_theta=1000000.0, routed_scaling_factor=1.0, tie_embedding=True,
             use_expert_bias=True, vocab_size=65536)),
]

CHECKPOINTS = [*QWEN, KIMI, FALCON, *GRANITE, *NEMOTRON, *LFM2]
