/* tests/unit/model/published_gguf.h - the tiny checkpoints as GGUF. */
#pragma once
#include <cstdint>

#include "tests/unit/model/published.h"

namespace published {

/* Keys of a GGUF file as bytes. */
struct Keys {
    std::string bytes;
    uint64_t n = 0;

    static std::string number(uint64_t value, int n_bytes)
    {
        std::string out;
        for (int i = 0; i < n_bytes; i++) out += static_cast<char>(value >> (8 * i));
        return out;
    }
    static std::string text(const std::string &value) { return number(value.size(), 8) + value; }
    void add(const std::string &key, uint64_t type, const std::string &value)
    {
        bytes += text(key) + number(type, 4) + value;
        n++;
    }
    void add_text(const std::string &key, const std::string &value) { add(key, 8, text(value)); }
    void add_integer(const std::string &key, uint32_t value) { add(key, 4, number(value, 4)); }
    void add_real(const std::string &key, float value)
    {
        add(key, 6, std::string(reinterpret_cast<const char *>(&value), sizeof value));
    }
};

/* The sizes of the tiny models. */
inline Keys keys_of(const std::string &arch)
{
    Keys keys;
    keys.add_text("general.architecture", arch);
    keys.add_text("tokenizer.ggml.model", "none");
    const std::pair<const char *, uint32_t> integers[] = { { ".block_count", LAYERS },
                                                           { ".embedding_length", D },
                                                           { ".attention.head_count", HEADS },
                                                           { ".attention.head_count_kv", KV_HEADS },
                                                           { ".attention.key_length", HEAD_DIM },
                                                           { ".attention.value_length", HEAD_DIM },
                                                           { ".feed_forward_length", FFN },
                                                           { ".context_length", 512 } };
    for (const auto &[key, value] : integers) keys.add_integer(arch + key, value);
    keys.add_real(arch + ".rope.freq_base", 10000.0f);
    keys.add_real(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
    return keys;
}

/* The tensors under the names that llama.cpp gives them. */
inline Arrays gguf_names(const Arrays &arrays)
{
    static const std::pair<const char *, const char *> names[] = {
        { "^model\\.", "" },
        { "^layers\\.", "blk." },
        { "^embed_tokens", "token_embd" },
        { "^norm", "output_norm" },
        { "input_layernorm", "attn_norm" },
        { "post_attention_layernorm", "ffn_norm" },
        { "post_self_attn_layernorm", "post_attention_norm" },
        { "post_mlp_layernorm", "post_ffw_norm" },
        { "self_attn\\.([qkv])_proj", "attn_$1" },
        { "self_attn\\.o_proj", "attn_output" },
        { "self_attn\\.([qk])_norm", "attn_$1_norm" },
        { "mlp\\.gate_up_proj", "ffn_up" },
        { "mlp\\.(gate|up|down)_proj", "ffn_$1" },
    };
    Arrays out;
    for (const auto &[name, array] : arrays) {
        std::string changed = name;
        for (const auto &[from, to] : names)
            changed = std::regex_replace(changed, std::regex(from), to);
        out[changed] = array;
    }
    return out;
}

inline void write_gguf(const std::string &path, const Keys &keys, const Arrays &arrays)
{
    std::string head = "GGUF" + Keys::number(3, 4) + Keys::number(arrays.size(), 8) +
                       Keys::number(keys.n, 8) + keys.bytes,
                data;
    for (const auto &[name, array] : arrays) {
        data.resize((data.size() + 31) / 32 * 32);
        head += Keys::text(name) + Keys::number(array.shape.size(), 4);
        for (size_t i = array.shape.size(); i-- > 0;)
            head += Keys::number(static_cast<uint64_t>(array.shape[i]), 8);
        head += Keys::number(0, 4) + Keys::number(data.size(), 8);
        data.append(
            reinterpret_cast<const char *>(array.values.data()), array.values.size() * sizeof(float)
        );
    }
    head.resize((head.size() + 31) / 32 * 32);
    data.resize((data.size() + 31) / 32 * 32);
    write_file(path, head + data);
}

} // namespace published
