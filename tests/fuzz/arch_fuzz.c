/* tests/fuzz/arch_fuzz.c - any bytes as an arch file: what is accepted must answer everything that
 * binding asks, for a checkpoint of each container. */
#include "engine/formats/config_meta.h"
#include "engine/formats/json.h"
#include "engine/model/arch_internal.h"
#include "tests/fuzz/arch_probe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] = "{\"model_type\":\"fuzz\",\"hidden_size\":64,\n"
                             "\"num_hidden_layers\":8,\"head_dim\":16,\n"
                             "\"num_attention_heads\":4,\"num_key_value_heads\":2,\n"
                             "\"intermediate_size\":96,\"rms_norm_eps\":1e-6,\n"
                             "\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\n"
                             "\"rope_theta\":1e4,\"linear_num_key_heads\":2,\n"
                             "\"linear_num_value_heads\":6,\"linear_key_head_dim\":16,\n"
                             "\"linear_value_head_dim\":16,\"linear_conv_kernel_dim\":4,\n"
                             "\"full_attention_interval\":4,\"sliding_window\":128,\n"
                             "\"global_head_dim\":32,\"num_global_key_value_heads\":1,\n"
                             "\"layer_types\":[\"sliding_attention\",\"sliding_attention\",\n"
                             "\"sliding_attention\",\"full_attention\",\"sliding_attention\",\n"
                             "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],\n"
                             "\"num_kv_shared_layers\":4,\"use_double_wide_mlp\":true,\n"
                             "\"hidden_size_per_layer_input\":8,\"num_experts\":8,\n"
                             "\"num_experts_per_token\":2,\"top_k_experts\":2,\n"
                             "\"moe_intermediate_size\":16,\"num_shared_experts\":1,\n"
                             "\"first_k_dense_replace\":1,\"kv_lora_rank\":24,\n"
                             "\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":8,\"v_head_dim\":16,\n"
                             "\"linear_attn_config\":{\"full_attn_layers\":[4,8],\n"
                             "\"kda_layers\":[1,2,3,5,6,7],\"head_dim\":16,\"num_heads\":4,\n"
                             "\"short_conv_kernel_size\":4},\n"
                             "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4.0,\n"
                             "\"full_attention\":{\"rope_type\":\"proportional\",\n"
                             "\"rope_theta\":1e6,\"partial_rotary_factor\":0.25},\n"
                             "\"sliding_attention\":{\"rope_theta\":1e4},\n"
                             "\"original_max_position_embeddings\":1024}}\n";

static weir_tensor_directory *create(weir_container container)
{
    weir_tensor_directory *const directory = weir_directory_create(container, "fuzz");
    probe_require(directory != NULL);
    return directory;
}

static void add(weir_tensor_directory *directory, const char *key, weir_meta value)
{
    weir_error error;
    probe_require(weir_directory_add_meta(directory, key, &value, &error) == WEIR_OK);
}

static weir_tensor_directory *gguf(void)
{
    static const char *const keys[] = {
        "fuzz.embedding_length",     "fuzz.block_count",
        "fuzz.attention.head_count", "fuzz.attention.head_count_kv",
        "fuzz.attention.key_length", "fuzz.feed_forward_length",
        "fuzz.context_length",       "fuzz.rope.dimension_count",
        "fuzz.ssm.group_count",      "fuzz.ssm.time_step_rank",
        "fuzz.ssm.state_size",       "fuzz.ssm.inner_size",
        "fuzz.ssm.conv_kernel",      "fuzz.full_attention_interval",
    };
    const weir_meta name = { .type = WEIR_META_STRING, .string = "fuzz", .length = 4 };
    const weir_meta four = { .type = WEIR_META_INT, .integer = 4 };
    weir_tensor_directory *const directory = create(WEIR_CONTAINER_GGUF);
    weir_error error;
    add(directory, "general.architecture", name);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) add(directory, keys[i], four);
    probe_require(weir_directory_finish(directory, &error) == WEIR_OK);
    return directory;
}

static weir_tensor_directory *safetensors(void)
{
    weir_error error;
    json_t *root = NULL;
    weir_tensor_directory *const directory = create(WEIR_CONTAINER_SAFETENSORS);
    const char *const name = "config.json";
    weir_status status;
    status = weir_json_parse(&root, config, sizeof config - 1, name, WEIR_JSON_DEPTH, &error);
    if (status == WEIR_OK) status = weir_config_meta_add(directory, root, name, &error);
    if (status == WEIR_OK) status = weir_directory_finish(directory, &error);
    probe_require(status == WEIR_OK);
    json_decref(root);
    return directory;
}

static void use(const weir_arch *arch, weir_tensor_directory *directory)
{
    weir_error error = { 0 };
    const weir_status status = weir_arch_check_refusals(arch, directory, &error);
    probe_status(status, &error);
    probe_arch(arch, directory);
    weir_tensor_directory_close(directory);
}

static const char *head_text(const weir_toml_node *root, const char *key)
{
    return weir_toml_string(weir_toml_get(weir_toml_get(root, "arch"), key), NULL);
}

/* The embedded file of this name, if it has no base itself. */
static weir_toml *base_of(const weir_arch *arch)
{
    for (const weir_embedded_file *file = weir_arch_files; file->name != NULL; file++) {
        weir_toml *base = NULL;
        weir_error error;
        const size_t n = strlen(file->text);
        probe_require(weir_toml_parse(&base, file->text, n, file->name, &error) == WEIR_OK);
        const weir_toml_node *const root = weir_toml_root(base);
        const char *const name = head_text(root, "name");
        probe_require(name != NULL);
        if (strcmp(name, arch->base) == 0 && head_text(root, "base") == NULL) return base;
        weir_toml_close(base);
    }
    return NULL;
}

static weir_status join(weir_arch *arch, weir_error *error)
{
    weir_toml *const base = base_of(arch);
    weir_toml *whole = NULL;
    if (base == NULL) return weir_error_set(error, WEIR_ECONFIG, "no such base");
    const weir_status status = weir_toml_join(&whole, base, arch->document, NULL, error);
    weir_toml_close(base);
    if (status != WEIR_OK) return status;
    weir_toml_close(arch->document);
    arch->document = whole;
    arch->root = weir_toml_root(whole);
    return WEIR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = { 0 };
    weir_arch arch = { .file = "fuzz.toml" };
    const char *const text = (const char *)data;
    weir_status status = weir_toml_parse(&arch.document, text, size, arch.file, &error);
    if (status != WEIR_OK) return 0;
    arch.root = weir_toml_root(arch.document);
    status = weir_arch_check_head(&arch, &error);
    if (status == WEIR_OK) {
        arch.name = head_text(arch.root, "name");
        arch.base = head_text(arch.root, "base");
        probe_require(arch.name != NULL);
        if (arch.base != NULL) status = join(&arch, &error);
    }
    if (status == WEIR_OK) status = weir_arch_check(&arch, &error);
    probe_status(status, &error);
    if (status == WEIR_OK) {
        use(&arch, gguf());
        use(&arch, safetensors());
    }
    weir_toml_close(arch.document);
    return 0;
}
