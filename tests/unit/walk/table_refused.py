"""Models that are refused, by the name of their architecture or by what it does not compute."""
import families as f
import keys as k
from table_dense import AIC, LLAMA, MEMORY, TRANSFORMERS
from table_experts import AIC_OLD


def refused(name, model_type, gguf, source, **config):
    """Only the names matter: the tensors are those of a small Llama."""
    sizes = dict(hidden_size=2048, intermediate_size=4096, num_attention_heads=16,
                 num_hidden_layers=2, num_key_value_heads=4, max_position_embeddings=8192,
                 rms_norm_eps=1e-5, rope_theta=10000.0, vocab_size=32000)
    text = config.pop("text_config", None)
    return dict(name=name, gguf=gguf, pre="llama-bpe", arch="", count=0, family=LLAMA,
                keys=[k.COMMON], source=source,
                refused=dict(hf=f"architecture '{text or model_type}' is not known",
                             gguf=f"architecture '{gguf}' is not known"),
                config=dict(model_type=model_type, **sizes, **config) | (
                    dict(text_config=dict(model_type=text)) if text else {}))


def quantised(name, model_type, method, source, refusal=None):
    """Quantised by other programs: no GGUF is made of it."""
    entry = refused(name, model_type, None, source,
                    quantization_config=dict(quant_method=method))
    return entry | dict(refused=dict(hf=refusal or f"quant_method' is \"{method}\""))


# Experts read a projection of the residual stream.
LATENT = dict(
    name="nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", gguf="nemotron_h_moe", pre="tekken", arch="",
    count=0, family=LLAMA, keys=[k.COMMON, k.EXPERTS, "moe_latent_size = 1024\n"],
    source=AIC + "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8_config.json",
    refused=dict(hf="'moe_latent_size' is 1024", gguf="'nemotron_h_moe.moe_latent_size' is 1024"),
    config=dict(
        model_type="nemotron_h", hidden_size=4096, intermediate_size=2688, moe_latent_size=1024,
        moe_intermediate_size=2688, n_routed_experts=512, num_attention_heads=32, norm_eps=1e-5,
        num_experts_per_tok=22, num_hidden_layers=2, num_key_value_heads=2, vocab_size=131072,
        max_position_embeddings=262144, rope_theta=10000))

CHECKPOINTS = [
    LATENT,
    quantised("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2", "awq", MEMORY),
    quantised("moonshotai/Kimi-K2-Thinking", "kimi_k2", "compressed-tensors",
              AIC_OLD + "moonshotai--Kimi-K2-Thinking_config.json"),
    quantised("nvidia/Qwen3-235B-A22B-NVFP4", "qwen3_moe", "modelopt",
              AIC + "nvidia--Qwen3-235B-A22B-NVFP4_config.json"),
    refused("google/gemma-3n-E4B-it", "gemma3n", "gemma3n", TRANSFORMERS + "gemma3n",
            text_config="gemma3n_text"),
    refused("tencent/Hunyuan-7B-Instruct", "hunyuan_v1_dense", "hunyuan-dense",
            TRANSFORMERS + "hunyuan_v1_dense"),
    refused("CohereLabs/c4ai-command-r-v01", "cohere", "command-r", TRANSFORMERS + "cohere"),
    refused("CohereLabs/c4ai-command-r7b-12-2024", "cohere2", "cohere2",
            TRANSFORMERS + "cohere2"),
    refused("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4", "llama4",
            AIC + "meta-llama--Llama-4-Scout-17B-16E-Instruct_config.json",
            text_config="llama4_text"),
]
