/* engine/hub/select.c - chooses the files of a model from the list of its repository. */
#include "engine/hub/select.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/hub/name.h"

/* ---- GGUF ------------------------------------------------------------------------------------ */

static bool has_quant(const char *name, const char *quant)
{
    return weir_hub_file_has_quant(name, quant) || strcasecmp(weir_hub_base_name(name), quant) == 0;
}

/* The first GGUF file by name, with this quantisation if `quant` is not NULL. */
static const weir_hub_file *first_gguf(const weir_hub_listing *listing, const char *quant)
{
    for (size_t i = 0; i < listing->n; i++)
        if (weir_hub_is_gguf(listing->files[i].name) &&
            (quant == NULL || has_quant(listing->files[i].name, quant)))
            return &listing->files[i];
    return NULL;
}

/* Adds a file and the others of its split set, which must all be there. */
static weir_status add_set(
    weir_hub_listing *out, const weir_hub_listing *listing, const char *name, weir_error *error
)
{
    const size_t length = weir_hub_set_length(name);
    const size_t count =
        name[length] != '\0' ? (size_t)strtoul(name + length + strlen("-00001-of-"), NULL, 10) : 1;
    for (size_t i = 0; i < listing->n; i++) {
        const char *const other = listing->files[i].name;
        const bool is_in = length == strlen(name)
                               ? strcmp(other, name) == 0
                               : weir_hub_set_length(other) == length && other[length] != '\0' &&
                                     strncmp(other, name, length) == 0 &&
                                     strcmp(other + length + 6, name + length + 6) == 0;
        if (is_in) WEIR_TRY(weir_hub_listing_put(out, &listing->files[i], error));
    }
    if (out->n == count) return WEIR_OK;
    return weir_error_set(
        error, WEIR_EFORMAT, "%s: the repository has %zu of the %zu files of this set", name,
        out->n, count
    );
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static bool begins_with(const char *name, const char *start)
{
    return strncmp(name, start, strlen(start)) == 0;
}

/* A file of weights in the repository's own folder; "consolidated" repeats them in another form. */
static bool is_weights(const char *name)
{
    return strchr(name, '/') == NULL && weir_hub_ends_with(name, ".safetensors") &&
           !begins_with(name, "consolidated");
}

static bool is_part_of_checkpoint(const char *name, bool only_model)
{
    static const char *const files[] = { "config.json",
                                         "generation_config.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "model.safetensors.index.json" };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(name, files[i]) == 0) return true;
    if (is_weights(name)) return !only_model || begins_with(name, "model");
    return strchr(name, '/') == NULL &&
           (begins_with(name, "tokenizer") || begins_with(name, "chat_template"));
}

/* Adds the files of a checkpoint. Leaves `out` empty if there are no weights. */
static weir_status add_checkpoint(
    weir_hub_listing *out, const weir_hub_listing *listing, weir_error *error
)
{
    bool has_weights = false, has_model = false;
    for (size_t i = 0; i < listing->n; i++) {
        const char *const name = listing->files[i].name;
        has_weights = has_weights || is_weights(name);
        has_model = has_model || (is_weights(name) && begins_with(name, "model"));
    }
    for (size_t i = 0; has_weights && i < listing->n; i++)
        if (is_part_of_checkpoint(listing->files[i].name, has_model))
            WEIR_TRY(weir_hub_listing_put(out, &listing->files[i], error));
    return WEIR_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The quantisations of a repository, each once, as a list; cut where `out` ends. */
static void list_quants(char *out, size_t capacity, const weir_hub_listing *listing)
{
    char quant[WEIR_HUB_QUANT + 1];
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < listing->n; i++) {
        if (!weir_hub_is_gguf(listing->files[i].name)) continue;
        weir_hub_file_quant(quant, listing->files[i].name);
        if (quant[0] == '\0' || weir_hub_file_has_quant(out, quant)) continue;
        const size_t n = strlen(quant);
        if (used + n + 3 > capacity) return;
        used += (size_t)snprintf(out + used, capacity - used, "%s%s", used > 0 ? ", " : "", quant);
    }
}

static weir_status not_there(
    const weir_hub_listing *listing, const char *quant, const char *file, const char *repository,
    weir_error *error
)
{
    char quants[400];
    list_quants(quants, sizeof quants, listing);
    if (file != NULL)
        return weir_error_set(
            error, WEIR_ENOTFOUND, "%s: no file \"%.200s\" in this repository", repository, file
        );
    if (quant[0] == '\0')
        return weir_error_set(
            error, WEIR_ENOTFOUND,
            "%s: neither GGUF nor safetensors files in this repository; name one with --file",
            repository
        );
    return weir_error_set(
        error, WEIR_ENOTFOUND, "%s: no GGUF file with \"%s\" in this repository%s%s", repository,
        quant, quants[0] != '\0' ? "; it has " : "", quants
    );
}

static weir_status select_file(
    weir_hub_listing *out, weir_hub_kind *kind, const weir_hub_listing *listing, const char *file,
    weir_error *error
)
{
    for (size_t i = 0; i < listing->n; i++)
        if (strcmp(listing->files[i].name, file) == 0) {
            *kind = weir_hub_is_gguf(file) ? WEIR_HUB_GGUF : WEIR_HUB_SINGLE;
            return add_set(out, listing, file, error);
        }
    return WEIR_OK;
}

weir_status weir_hub_select(
    weir_hub_listing *out, weir_hub_kind *kind, const weir_hub_listing *listing, const char *quant,
    const char *file, const char *repository, weir_error *error
)
{
    *out = (weir_hub_listing){ 0 };
    *kind = WEIR_HUB_GGUF;
    weir_status status = WEIR_OK;
    if (file != NULL) {
        status = select_file(out, kind, listing, file, error);
    } else {
        const weir_hub_file *found = first_gguf(listing, quant[0] != '\0' ? quant : "Q4_K_M");
        if (found == NULL && quant[0] == '\0') found = first_gguf(listing, "Q8_0");
        if (found == NULL && quant[0] == '\0') found = first_gguf(listing, NULL);
        if (found != NULL) {
            status = add_set(out, listing, found->name, error);
        } else if (quant[0] == '\0') {
            *kind = WEIR_HUB_CHECKPOINT;
            status = add_checkpoint(out, listing, error);
        }
    }
    if (status == WEIR_OK && out->n == 0)
        status = not_there(listing, quant, file, repository, error);
    if (status != WEIR_OK) weir_hub_listing_free(out);
    return status;
}
