#include "tools/convert/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/formats/printable.h"

weir_status weir_imatrix_open(weir_imatrix *out, const char *path, weir_error *error)
{
    weir_meta type;
    *out = (weir_imatrix){ 0 };
    WEIR_TRY(weir_tensor_directory_open(&out->directory, path, error));
    if (weir_tensor_directory_container(out->directory) == WEIR_CONTAINER_GGUF &&
        weir_tensor_directory_meta(out->directory, "general.type", &type) &&
        type.type == WEIR_META_STRING && strcmp(type.string, "imatrix") == 0)
        return WEIR_OK;
    weir_imatrix_close(out);
    return weir_error_set(
        error, WEIR_EFORMAT,
        "%s: is no importance matrix: a GGUF file with general.type \"imatrix\", as `weir imatrix` "
        "writes it",
        path
    );
}

void weir_imatrix_close(weir_imatrix *imatrix)
{
    if (imatrix == NULL) return;
    weir_tensor_directory_close(imatrix->directory);
    imatrix->directory = NULL;
}

/* The tensor NAME.END; NULL: there is none. */
static const weir_tensor *find(const weir_imatrix *imatrix, const char *name, const char *end)
{
    char full[WEIR_NAME_BYTES + 16];
    if (snprintf(full, sizeof full, "%s.%s", name, end) >= (int)sizeof full) return NULL;
    return weir_tensor_directory_find(imatrix->directory, full);
}

/* True for f32 with n elements in rows of n_in. */
static bool fits(const weir_tensor *tensor, int64_t n_matrices, int64_t n_in)
{
    int64_t n = 1;
    for (int32_t i = 0; i < tensor->n_dims; i++) n *= tensor->shape[i]; /* the reader checked it */
    return tensor->dtype == WEIR_F32 && n / n_in == n_matrices && n % n_in == 0 &&
           tensor->bytes == (size_t)n * sizeof(float);
}

weir_status weir_imatrix_read(
    const weir_imatrix *imatrix, const char *name, int64_t matrix, int64_t n_matrices, int64_t n_in,
    float *out, bool *found, weir_error *error
)
{
    const char *const path = weir_tensor_directory_path(imatrix->directory);
    const weir_tensor *const sums = find(imatrix, name, "in_sum2"), *const counts = find(
                                                                        imatrix, name, "counts"
                                                                    );
    float count;
    *found = false;
    if (sums == NULL || counts == NULL) return WEIR_OK;
    if (!fits(sums, n_matrices, n_in) || !fits(counts, n_matrices, 1))
        return weir_error_set(
            error, WEIR_EMISMATCH,
            "%s: %s has not the sizes of this model, %lld x %lld: it is of another one", path,
            sums->name, (long long)n_matrices, (long long)n_in
        );
    memcpy(&count, counts->data + (size_t)matrix * sizeof count, sizeof count);
    if (!(count > 0.0f)) return WEIR_OK;
    memcpy(out, sums->data + (size_t)(matrix * n_in) * sizeof *out, (size_t)n_in * sizeof *out);
    for (int64_t i = 0; i < n_in; i++) {
        out[i] /= count;
        if (!isfinite(out[i]) || out[i] < 0.0f)
            return weir_error_set(
                error, WEIR_EFORMAT, "%s: %s has an element that is no mean of squares", path,
                sums->name
            );
    }
    *found = true;
    return WEIR_OK;
}
