"""The names that expressions in families.py and keys.py may use, from config.json."""


def names(entry):
    config = dict(entry["config"])
    config.update(config.get("text_config", {}))
    config = entry.get("defaults", {}) | config
    get = config.get
    n = {"config": config, "float": float, "range": range}
    n["V"], n["D"] = config["vocab_size"], config["hidden_size"]
    n["L"] = n["n_layers"] = config["num_hidden_layers"]
    n["H"] = config["num_attention_heads"]
    n["K"] = get("num_key_value_heads") or n["H"]
    n["hd"] = get("head_dim") or get("attention_head_dim") or n["D"] // n["H"]
    n["F"] = get("d_ffn") or get("intermediate_size")
    n["context"] = get("max_position_embeddings") or get("model_max_length") or 131072
    n["eps"] = get("rms_norm_eps") or get("norm_eps") or get("layer_norm_epsilon")
    rope = get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    n["theta"] = rope.get("rope_theta") or get("rope_theta") or 10000
    n["scaling"] = get("rope_scaling") or (rope if "factor" in rope else None)
    n["original"] = (n["scaling"] or {}).get("original_max_position_embeddings")
    n["rotary"] = get("rotary_dim") or int(n["hd"] * get("partial_rotary_factor", 1.0))
    n["tied"] = entry.get("tied", get("tie_word_embeddings", False))
    n["untied"] = not n["tied"]
    n["stored_head"] = entry.get("stored_head", False)
    n["window"] = get("sliding_window")
    n["vision"] = "vision_config" in entry["config"]
    n["drafts"] = entry.get("drafts", 0)
    n["drafts_in_gguf"] = entry.get("drafts_in_gguf", False)
    experts(n, get)
    latent(n, get)
    linear(n, get)
    layers(n, config)
    gemma4(n, get)
    return n


def experts(n, get):
    keys = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
    n["E"] = next((get(key) for key in keys if get(key)), 0)
    n["Fe"] = get("moe_intermediate_size") or get("intermediate_size")
    shared = next((get(key) for key in ("n_shared_experts", "num_shared_experts",
                                        "moe_num_shared_experts") if get(key)), 0)
    widths = ("shared_expert_intermediate_size", "shared_intermediate_size",
              "moe_shared_expert_intermediate_size")
    n["Fs"] = next((get(key) for key in widths if get(key)), None) or shared * (n["Fe"] or 0)
    used = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_k")
    n["used"] = next((get(key) for key in used if get(key)), 0)
    first = next((get(key) for key in ("first_k_dense_replace", "num_dense_layers",
                                       "moe_layer_start_index") if get(key)), 0)
    n["dense"] = lambda i: n["E"] == 0 or i < first
    n["routing_bias"] = get("use_routing_bias", False)


def latent(n, get):
    n["Rq"], n["R"] = get("q_lora_rank"), get("kv_lora_rank")
    n["nope"], n["rope"] = get("qk_nope_head_dim"), get("qk_rope_head_dim")
    n["vd"] = get("v_head_dim")


def linear(n, get):
    n["Hk"], n["Hv"] = get("linear_num_key_heads"), get("linear_num_value_heads")
    n["dk"], n["dv"] = get("linear_key_head_dim"), get("linear_value_head_dim")
    n["qkvz"] = get("model_type") == "qwen3_next"
    n["ssm"] = get("mamba_num_heads") or get("mamba_n_heads")
    n["inner"] = (n["ssm"] or 0) * (get("mamba_head_dim") or get("mamba_d_head") or 0)
    n["groups"] = get("n_groups") or get("mamba_n_groups")
    n["state"] = get("ssm_state_size") or get("mamba_d_state")


def layers(n, config):
    """Kinds of layers; a draft block after the last one attends to all rows."""
    types, count = config.get("layer_types"), n["n_layers"]
    full_layers = (config.get("linear_attn_config") or {}).get("full_attn_layers")
    if full_layers:
        types = ["full_attention" if i + 1 in full_layers else "kda" for i in range(count)]
    elif types is None and config.get("full_attn_idxs"):
        full = config["full_attn_idxs"]
        types = ["full_attention" if i in full else "conv" for i in range(count)]
    elif types is None and config.get("hybrid_override_pattern"):
        kinds = {"M": "mamba", "*": "attention", "-": "mlp", "E": "experts"}
        types = [kinds[c] for c in config["hybrid_override_pattern"]]
    elif types is None:
        every = config.get("full_attention_interval") or config.get("sliding_window_pattern") or 2
        types = ["full_attention" if (i + 1) % every == 0 else "sliding_attention"
                 for i in range(count)]

    def is_of(*kinds):
        return lambda i: i < count and types[i] in kinds

    n["full"] = lambda i: i >= count or types[i] == "full_attention"
    n["local"] = is_of("sliding_attention")
    n["mamba"], n["mlp"], n["experts"] = is_of("mamba"), is_of("mlp"), is_of("experts")
    n["attention"] = is_of("attention", "full_attention")


def gemma4(n, get):
    n["Kg"], n["P"] = get("num_global_key_value_heads"), get("hidden_size_per_layer_input") or 0
    n["same_kv"] = get("attention_k_eq_v", False)
    n["shared"], n["wide"] = get("num_kv_shared_layers") or 0, get("use_double_wide_mlp", False)
    local, first = n["local"], n["n_layers"] - n["shared"]
    n["dim"] = lambda i: n["hd"] if local(i) else get("global_head_dim")
    n["heads"] = lambda i: n["K"] if local(i) or not n["Kg"] else n["Kg"]
    n["width"] = lambda i: n["F"] * (2 if n["wide"] and i >= first else 1)
