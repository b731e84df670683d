"""Models of attention with experts; what an entry says is explained in table.py."""
import families as f
import keys as k
from table_dense import AIC, MAXTEXT, MEMORY, MLC, TRANSFORMERS

AIC_OLD = "ai-dynamo/aiconfigurator: src/aiconfigurator/model_configs/"
MOE = [f.ENDS, f.NORMS, f.ATTENTION, f.SWIGLU, f.EXPERTS]
MOE_KEYS = [k.COMMON, k.HEADS, k.EXPERTS, k.EXPERT_WIDTH]
FP8 = dict(
    activation_scheme="dynamic", fmt="e4m3", quant_method="fp8", weight_block_size=[128, 128],
)

QWEN3_CONFIG = dict(
    model_type="qwen3_moe", attention_bias=False, decoder_sparse_step=1, head_dim=128,
    hidden_act="silu", max_position_embeddings=40960, mlp_only_layers=[], norm_topk_prob=True,
    num_experts=128, num_experts_per_tok=8, num_key_value_heads=4, rms_norm_eps=1e-6,
    rope_scaling=None, rope_theta=1000000.0, sliding_window=None, tie_word_embeddings=False,
    use_sliding_window=False, vocab_size=151936,
)
QWEN3_30B = dict(
    hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_attention_heads=32,
    num_hidden_layers=48,
)
QWEN3_235B = dict(
    hidden_size=4096, intermediate_size=12288, moe_intermediate_size=1536,
    num_attention_heads=64, num_hidden_layers=94,
)

QWEN = [
    dict(name="Qwen/Qwen3-30B-A3B", gguf="qwen3moe", pre="qwen2", count=30.5e9,
         kv=48 * 4 * 2 * 128, family=[*MOE, f.QK_NORMS], keys=MOE_KEYS, files=16,
         source=AIC + "Qwen--Qwen3-30B-A3B_config.json", config=QWEN3_CONFIG | QWEN3_30B),
    dict(name="Qwen/Qwen3-235B-A22B", gguf="qwen3moe", pre="qwen2", count=235e9,
         kv=94 * 4 * 2 * 128, family=[*MOE, f.QK_NORMS], keys=MOE_KEYS, files=118,
         source=AIC + "Qwen--Qwen3-235B-A22B_config.json", config=QWEN3_CONFIG | QWEN3_235B),
    dict(name="Qwen/Qwen3-30B-A3B-FP8", gguf=None, arch="qwen3moe", count=30.5e9,
         kv=48 * 4 * 2 * 128, family=[*MOE, f.QK_NORMS], keys=MOE_KEYS, files=7, fp8=True,
         source=AIC + "Qwen--Qwen3-30B-A3B-FP8_config.json",
         config=QWEN3_CONFIG | QWEN3_30B | dict(quantization_config=FP8)),
    dict(name="Qwen/Qwen3-VL-30B-A3B-Instruct", gguf="qwen3vlmoe", pre="qwen2", count=30.5e9,
         kv=48 * 4 * 2 * 128,
         keys=[*MOE_KEYS, "rope.dimension_sections = [24, 20, 20, 0]\nn_deepstack_layers = 3\n"],
         source=AIC + "Qwen--Qwen3-VL-30B-A3B-Instruct_config.json", files=13,
         prefix="model.language_model.",
         family=[f.ENDS, f.NORMS, f.ATTENTION, f.QK_NORMS, f.VISION_OF_QWEN, """
B.ffn_gate_inp.weight | L.mlp.gate.weight | E D
- | L.mlp.experts.gate_up_proj | E D 2*Fe
- | L.mlp.experts.down_proj | E Fe D
B.ffn_gate_exps.weight | - | E Fe D
B.ffn_up_exps.weight | - | E Fe D
B.ffn_down_exps.weight | - | E D Fe
"""],
         config=dict(
             model_type="qwen3_vl_moe", tie_word_embeddings=False, vision_config={"depth": 27},
             text_config=QWEN3_CONFIG | QWEN3_30B | dict(
                 model_type="qwen3_vl_moe_text", max_position_embeddings=262144,
                 rope_scaling=dict(mrope_interleaved=True, mrope_section=[24, 20, 20],
                                   rope_type="default"), rope_theta=5000000))),
]

# Biases are added to scores by softmax; one draft block, which is skipped.
ERNIE = dict(
    name="baidu/ERNIE-4.5-21B-A3B-PT", gguf="ernie4_5-moe", pre="llama", count=21.8e9, files=9,
    kv=28 * 4 * 2 * 128, source=TRANSFORMERS + "ernie4_5_moe/configuration_ernie4_5_moe.py",
    family=[f.ENDS, f.NORMS, f.ATTENTION, f.SWIGLU, f.EXPERTS, f.SHARED_EXPERT, """
[not dense(i)] B.exp_probs_b.bias | - | E | F32
[not dense(i)] - | L.mlp.moe_statics.e_score_correction_bias | 1 E | F32 F32
- | model.mtp_block.0.input_layernorm.weight | D
- | model.mtp_block.0.self_attn.q_proj.weight | H*hd D
- | model.mtp_emb_norm.0.weight | D
- | model.mtp_hidden_norm.0.weight | D
- | model.mtp_linear_proj.0.weight | D 2*D
"""],
    keys=[k.COMMON, k.HEADS, k.ROTARY, k.EXPERTS, k.EXPERT_WIDTH, """
expert_shared_count = 2
expert_shared_feed_forward_length = Fs
interleave_moe_layer_step = 1
leading_dense_block_count = 1
"""],
    config=dict(
        model_type="ernie4_5_moe", head_dim=128, hidden_act="silu", hidden_size=2560,
        intermediate_size=12288, max_position_embeddings=131072, moe_intermediate_size=1536,
        moe_k=6, moe_layer_end_index=27, moe_layer_interval=1, moe_layer_start_index=1,
        moe_num_experts=64, moe_num_shared_experts=2, num_attention_heads=20,
        num_hidden_layers=28, num_key_value_heads=4, num_nextn_predict_layers=1,
        rms_norm_eps=1e-5, rope_scaling=None, rope_theta=500000, tie_word_embeddings=True,
        use_bias=False, vocab_size=103424))

MLA = [f.ENDS, f.NORMS, f.MLA, f.SWIGLU, f.EXPERTS, f.SHARED_EXPERT]
MLA_KEYS = [k.COMMON, k.EXPERTS, k.EXPERT_WIDTH, k.SHARED, k.GROUPS, k.YARN, k.MLA,
            "attention.head_count_kv = 1\n"]
DEEPSEEK3 = dict(
    model_type="deepseek_v3", attention_bias=False, ep_size=1, first_k_dense_replace=3,
    hidden_act="silu", hidden_size=7168, intermediate_size=18432, kv_lora_rank=512,
    max_position_embeddings=163840, moe_intermediate_size=2048, moe_layer_freq=1, n_group=8,
    n_routed_experts=256, n_shared_experts=1, norm_topk_prob=True, num_attention_heads=128,
    num_experts_per_tok=8, num_hidden_layers=61, num_key_value_heads=128,
    num_nextn_predict_layers=1, q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64,
    quantization_config=FP8, rms_norm_eps=1e-6, rope_theta=10000, routed_scaling_factor=2.5,
    rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0, mscale_all_dim=1.0,
                      original_max_position_embeddings=4096, type="yarn"),
    scoring_func="sigmoid", tie_word_embeddings=False, topk_group=4, topk_method="noaux_tc",
    v_head_dim=128, vocab_size=129280,
)

DEEPSEEK = [
    dict(name="deepseek-ai/DeepSeek-V2-Lite", gguf="deepseek2", pre="deepseek-llm", count=15.7e9,
         kv=27 * (512 + 64), family=MLA, keys=[*MLA_KEYS, "expert_gating_func = 1\n"], source=MLC,
         files=4,
         config=dict(
             model_type="deepseek_v2", attention_bias=False, aux_loss_alpha=0.001,
             first_k_dense_replace=1, hidden_act="silu", hidden_size=2048,
             intermediate_size=10944, kv_lora_rank=512, max_position_embeddings=163840,
             moe_intermediate_size=1408, moe_layer_freq=1, n_group=1, n_routed_experts=64,
             n_shared_experts=2, norm_topk_prob=False, num_attention_heads=16,
             num_experts_per_tok=6, num_hidden_layers=27, num_key_value_heads=16,
             q_lora_rank=None, qk_nope_head_dim=128, qk_rope_head_dim=64, rms_norm_eps=1e-6,
             rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=0.707,
                               mscale_all_dim=0.707, original_max_position_embeddings=4096,
                               type="yarn"),
             rope_theta=10000, routed_scaling_factor=1.0, scoring_func="softmax", seq_aux=True,
             tie_word_embeddings=False, topk_group=1, topk_method="greedy", v_head_dim=128,
             vocab_size=102400)),
    # R1 has the same header.
    dict(name="deepseek-ai/DeepSeek-V3", gguf="deepseek2", pre="deepseek-v3", arch="deepseek3",
         count=671e9, kv=61 * (512 + 64), family=[*MLA, f.SELECTION_BIAS, f.DRAFT_OF_DEEPSEEK],
         keys=[*MLA_KEYS, k.SIGMOID], source=AIC + "deepseek-ai--DeepSeek-V3_config.json",
         files=163, fp8=True, drafts=1, config=DEEPSEEK3),
    dict(name="moonshotai/Kimi-K2-Instruct", gguf="deepseek2", pre="kimi-k2", arch="deepseek3",
         count=1.026e12, kv=61 * (512 + 64), family=[*MLA, f.SELECTION_BIAS],
         keys=[*MLA_KEYS, k.SIGMOID], source=AIC + "moonshotai--Kimi-K2-Instruct_config.json",
         files=61, fp8=True,
         config=DEEPSEEK3 | dict(
             model_type="kimi_k2", first_k_dense_replace=1, max_position_embeddings=131072,
             n_group=1, n_routed_experts=384, num_attention_heads=64, num_key_value_heads=64,
             num_nextn_predict_layers=0, rope_theta=50000.0, routed_scaling_factor=2.827,
             rope_scaling=dict(beta_fast=1.0, beta_slow=1.0, factor=32.0, mscale=1.0,
                               mscale_all_dim=1.0, original_max_position_embeddings=4096,
                               type="yarn"),
             topk_group=1, vocab_size=163840)),
    dict(name="zai-org/GLM-4.7-Flash", gguf="deepseek2", pre="glm4",
         arch=dict(hf="glm4moelite", gguf="deepseek3"), count=29.9e9, kv=47 * (512 + 64),
         family=[*MLA, f.SELECTION_BIAS, f.DRAFT_OF_DEEPSEEK], keys=MLA_KEYS, files=48, drafts=1,
         source=AIC_OLD + "zai-org--GLM-4.7-Flash_config.json",
         config=dict(
             model_type="glm4_moe_lite", attention_bias=False, first_k_dense_replace=1,
             head_dim=64, hidden_act="silu", hidden_size=2048, intermediate_size=10240,
             kv_lora_rank=512, max_position_embeddings=202752, moe_intermediate_size=1536,
             n_group=1, n_routed_experts=64, n_shared_experts=1, norm_topk_prob=True,
             num_attention_heads=20, num_experts_per_tok=4, num_hidden_layers=47,
             num_key_value_heads=20, num_nextn_predict_layers=1, partial_rotary_factor=1.0,
             q_lora_rank=768, qk_nope_head_dim=192, qk_rope_head_dim=64, rms_norm_eps=1e-5,
             rope_scaling=None, rope_theta=1000000, routed_scaling_factor=1.8,
             tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", v_head_dim=256,
             vocab_size=154880)),
]


def gpt_oss(size, count, n_layers, n_experts, files):
    half = n_layers // 2
    return dict(
        name=f"openai/gpt-oss-{size}", joined=True, gguf="gpt-oss", pre="gpt-4o", count=count,
        kv=half * 8 * 2 * 64, kv_window=half * 8 * 2 * 64, files=files,
        family=[f.ENDS, f.ATTENTION, f.QKV_BIASES, f.GPT_OSS],
        keys=[k.COMMON, k.HEADS, k.EXPERTS, k.EXPERT_WIDTH, k.WINDOW, k.YARN],
        source=f"{AIC}openai--gpt-oss-{size}_config.json",
        config=dict(
            model_type="gpt_oss", attention_bias=True, experts_per_token=4, head_dim=64,
            hidden_act="silu", hidden_size=2880, initial_context_length=4096,
            intermediate_size=2880, layer_types=["sliding_attention", "full_attention"] * half,
            max_position_embeddings=131072, num_attention_heads=64, num_experts_per_tok=4,
            num_hidden_layers=n_layers, num_key_value_heads=8, num_local_experts=n_experts,
            quantization_config=dict(quant_method="mxfp4"), rms_norm_eps=1e-5,
            rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, rope_type="yarn",
                              original_max_position_embeddings=4096, truncate=False),
            rope_theta=150000, sliding_window=128, swiglu_limit=7.0, tie_word_embeddings=False,
            vocab_size=201088))


GEMMA4_ROPE = dict(
    full_attention=dict(partial_rotary_factor=0.25, rope_theta=1e6, rope_type="proportional"),
    sliding_attention=dict(rope_theta=10000.0, rope_type="default"),
)


def gemma4(size, count, pattern, kv, kv_window, source, files, text):
    n_layers = text["num_hidden_layers"]
    types = (["sliding_attention"] * (pattern - 1) + ["full_attention"]) * (n_layers // pattern)
    has_experts = text.get("num_experts") is not None
    return dict(
        name=f"google/gemma-4-{size}", gguf="gemma4", pre="gemma4", count=count, kv=kv, tied=True,
        arch="gemma4moe" if has_experts else "gemma4", kv_window=kv_window, source=source,
        family=[f.ENDS, f.GEMMA_NORMS, f.GEMMA4, """
- | model.vision_tower.patch_embedder.input_proj.weight | 768 768
- | model.embed_vision.embedding_projection.weight | D 768
"""],
        keys=[k.COMMON, k.WINDOW, k.PATTERN, k.GEMMA4,
              *((k.EXPERTS, k.EXPERT_WIDTH) if has_experts else ())],
        prefix="model.language_model.", files=files,
        config=dict(
            model_type="gemma4", audio_config=None, tie_word_embeddings=True,
            vision_config={"hidden_size": 768},
            text_config=dict(
                model_type="gemma4_text", attention_bias=False, final_logit_softcapping=30.0,
                global_head_dim=512, head_dim=256, hidden_activation="gelu_pytorch_tanh",
                layer_types=types, rms_norm_eps=1e-6, rope_parameters=GEMMA4_ROPE,
                tie_word_embeddings=True, vocab_size=262144, vocab_size_per_layer_input=262144,
                **text)))


LARGE_GEMMA4 = dict(
    attention_k_eq_v=True, hidden_size_per_layer_input=0, max_position_embeddings=262144,
    num_kv_shared_layers=0, sliding_window=1024, use_bidirectional_attention="vision",
    use_double_wide_mlp=False,
)
SMALL_GEMMA4 = dict(
    attention_k_eq_v=False, enable_moe_block=False, hidden_size_per_layer_input=256,
    max_position_embeddings=131072, num_attention_heads=8, num_experts=None,
    num_global_key_value_heads=None, sliding_window=512, top_k_experts=None,
    use_bidirectional_attention=None,
)

GEMMA4 = [
    # Published as 5.1B and 8B with towers of 0.15B and 0.3B. Of 35 layers the last 20 read rows of
    # others: of the others 12 have a window.
    gemma4("E2B-it", 4.65e9, 5, 3 * 2 * 512, 12 * 2 * 256, MAXTEXT, 1, SMALL_GEMMA4 | dict(
        hidden_size=1536, intermediate_size=6144, num_hidden_layers=35, num_key_value_heads=1,
        num_kv_shared_layers=20, use_double_wide_mlp=True)),
    gemma4("E4B-it", 7.5e9, 6, 4 * 2 * 2 * 512, 20 * 2 * 2 * 256, MAXTEXT, 1, SMALL_GEMMA4 | dict(
        hidden_size=2560, intermediate_size=10240, num_hidden_layers=42, num_key_value_heads=2,
        num_kv_shared_layers=18, use_double_wide_mlp=False)),
    gemma4("26B-A4B", 25.2e9, 6, 5 * 2 * 2 * 512, 25 * 8 * 2 * 256,
           AIC + "google--gemma-4-26B-A4B_config.json", 2, LARGE_GEMMA4 | dict(
               enable_moe_block=True, hidden_size=2816, intermediate_size=2112,
               moe_intermediate_size=704, num_attention_heads=16, num_experts=128,
               num_global_key_value_heads=2, num_hidden_layers=30, num_key_value_heads=8,
               top_k_experts=8)),
    gemma4("31B-it", 30.7e9, 6, 10 * 4 * 2 * 512, 50 * 16 * 2 * 256, MAXTEXT, 13,
           LARGE_GEMMA4 | dict(
               enable_moe_block=False, hidden_size=5376, intermediate_size=21504,
               num_attention_heads=32, num_experts=None, num_global_key_value_heads=4,
               num_hidden_layers=60, num_key_value_heads=16, top_k_experts=None)),
]

OTHERS = [
    dict(name="mistralai/Mixtral-8x7B-v0.1", joined=True, gguf="llama", pre="llama", arch="mixtral",
         count=46.7e9, kv=32 * 8 * 2 * 128, files=19,
         family=[f.ENDS, f.NORMS, f.ATTENTION, f.EXPERTS_OF_MIXTRAL],
         keys=[k.COMMON, k.ROTARY, k.EXPERTS],
         source=AIC + "mistralai--Mixtral-8x7B-v0.1_config.json",
         config=dict(
             model_type="mixtral", hidden_act="silu", hidden_size=4096, intermediate_size=14336,
             max_position_embeddings=32768, num_attention_heads=32, num_experts_per_tok=2,
             num_hidden_layers=32, num_key_value_heads=8, num_local_experts=8, rms_norm_eps=1e-5,
             rope_theta=1e6, sliding_window=None, tie_word_embeddings=False, vocab_size=32000)),
    gpt_oss("20b", 20.9e9, 24, 32, 3),
    gpt_oss("120b", 116.8e9, 36, 128, 15),
    dict(name="zai-org/GLM-4.5-Air", gguf="glm4moe", pre="glm4", count=106e9,
         kv=46 * 8 * 2 * 128, files=47, drafts=1, drafts_in_gguf=True,
         family=[f.ENDS, f.ATTENTION, f.QKV_BIASES, f.SWIGLU, f.EXPERTS, f.SHARED_EXPERT,
                 f.SELECTION_BIAS, f.DRAFT_OF_DEEPSEEK, """
B.attn_norm.weight | L.input_layernorm.weight | D
B.post_attention_norm.weight | L.post_attention_layernorm.weight | D
"""],
         keys=[*MOE_KEYS, k.SHARED, k.SIGMOID, k.GROUPS, k.ROTARY, k.DRAFTS],
         source=TRANSFORMERS + "glm4_moe/configuration_glm4_moe.py",
         config=dict(
             model_type="glm4_moe", attention_bias=True, first_k_dense_replace=1, head_dim=128,
             hidden_act="silu", hidden_size=4096, intermediate_size=10944,
             max_position_embeddings=131072, moe_intermediate_size=1408, n_group=1,
             n_routed_experts=128, n_shared_experts=1, norm_topk_prob=True,
             num_attention_heads=96, num_experts_per_tok=8, num_hidden_layers=46,
             num_key_value_heads=8, num_nextn_predict_layers=1, partial_rotary_factor=0.5,
             rms_norm_eps=1e-5, rope_scaling=None, rope_theta=1000000, routed_scaling_factor=1.0,
             tie_word_embeddings=False, topk_group=1, use_qk_norm=False, vocab_size=151552)),
    # Of a draft block only the settings are published.
    dict(name="MiniMaxAI/MiniMax-M2", joined=True, gguf="minimax-m2", pre="minimax-m2", count=230e9,
         kv=62 * 8 * 2 * 128, files=130, fp8=True,
         family=[f.ENDS, f.NORMS, f.ATTENTION, f.QK_NORMS_OVER_ALL, f.EXPERTS_OF_MIXTRAL],
         keys=[*MOE_KEYS, k.SIGMOID, k.ROTARY],
         source=AIC + "MiniMaxAI--MiniMax-M2.5_config.json",
         config=dict(
             model_type="minimax_m2", head_dim=128, hidden_act="silu", hidden_size=3072,
             intermediate_size=1536, max_position_embeddings=196608, mtp_transformer_layers=1,
             num_attention_heads=48, num_experts_per_tok=8, num_hidden_layers=62,
             num_key_value_heads=8, num_local_experts=256, num_mtp_modules=3,
             qk_norm_type="per_layer", quantization_config=FP8, rms_norm_eps=1e-6,
             rope_theta=5000000, rotary_dim=64, scoring_func="sigmoid",
             shared_intermediate_size=0, tie_word_embeddings=False, use_mtp=True,
             use_qk_norm=True, use_routing_bias=True, vocab_size=200064)),
]

CHECKPOINTS = [*QWEN, *DEEPSEEK, ERNIE, *GEMMA4, *OTHERS]
