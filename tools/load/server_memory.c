#include "tools/load/server_memory.h"

#include <jansson.h>

#include "engine/formats/json.h"

/* A count at two or three keys; -1: there is none. */
static int64_t count_at(const json_t *root, const char *a, const char *b, const char *c)
{
    const json_t *value = json_object_get(json_object_get(root, a), b);
    if (c != NULL) value = json_object_get(value, c);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

void weir_server_memory_read(
    weir_server_memory *out, const weir_load_target *target, int64_t timeout_ms
)
{
    weir_buffer reply = { 0 };
    weir_error error;
    json_t *root = NULL;
    int status = 0;
    *out = (weir_server_memory){ 0 };
    if (weir_load_fetch(&reply, &status, target, "/v1/memory", NULL, timeout_ms, &error) ==
            WEIR_OK &&
        status == 200)
        (void)weir_json_build(&root, NULL, reply.data, reply.size, &weir_json_request);
    out->peak = count_at(root, "tiers", "host", "peak");
    out->device_peak = count_at(root, "tiers", "device", "peak");
    out->kv_pool = count_at(root, "kv", "bytes", NULL);
    out->kv_bytes_per_token = count_at(root, "kv", "bytes_per_token", NULL);
    out->is_known = out->peak > 0 && out->kv_pool >= 0 && out->kv_bytes_per_token >= 0;
    json_decref(root);
    weir_buffer_free(&reply);
}
