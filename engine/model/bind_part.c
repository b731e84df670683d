/* engine/model/bind_part.c - where the rows of a parameter are in a tensor. The tensor is the
 * parameter's own, or has the matrices of all experts one after another, or is fused: in each
 * matrix the rows of several parameters follow each other, as a whole or in groups. Its shape says
 * which. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/checked.h"
#include "engine/model/bind_internal.h"

int64_t weir_bind_elements(const int64_t *dims, int32_t n_dims)
{
    size_t n = 1;
    for (int32_t i = 0; i < n_dims; i++)
        if (dims[i] < 1 || !weir_mul_size(&n, n, (size_t)dims[i]) || n > INT64_MAX) return 0;
    return (int64_t)n;
}

/* ---- sizes of parameters --------------------------------------------------------------------- */
/* What `transposed` of an entry says. */
static bool is_transposed(const weir_toml_node *entry)
{
    bool out = false;
    (void)weir_toml_bool(weir_toml_get(entry, "transposed"), &out);
    return out;
}

/* What `hf_inputs_first` of an entry says. */
static bool inputs_first(const binder *b, const weir_toml_node *entry)
{
    bool out = false;
    (void)weir_toml_bool(weir_toml_get(entry, "hf_inputs_first"), &out);
    return out && b->container == WEIR_CONTAINER_SAFETENSORS;
}

static bool set_dims(
    const binder *b, wanted *w, const weir_parameter *parameter, const weir_block_use *use
)
{
    const bool is_array =
        parameter->kind == WEIR_PARAMETER_EXPERTS || parameter->kind == WEIR_PARAMETER_HEADS;
    w->n_dims = 0;
    while (w->n_dims < WEIR_TENSOR_DIMS && parameter->dims[w->n_dims] != NULL) {
        w->dims[w->n_dims] = parameter->dims[w->n_dims](&b->model->shape, use->options);
        w->n_dims++;
    }
    const int64_t all = weir_bind_elements(w->dims, w->n_dims);
    if (all == 0) return false;
    w->n_experts = is_array ? w->dims[0] : 0;
    w->n_in = parameter->kind == WEIR_PARAMETER_VECTOR ? 1 : w->dims[w->n_dims - 1];
    WEIR_ASSERT(w->n_in > 0); /* it divides `all` */
    w->n_rows = all / w->n_in / (w->n_experts > 0 ? w->n_experts : 1);
    w->is_transposed = is_transposed(weir_toml_get(b->table, parameter->name));
    w->inputs_first = inputs_first(b, weir_toml_get(b->table, parameter->name));
    w->fused_n_rows = w->is_transposed ? w->n_in : w->n_rows;
    w->fused_n_in = w->is_transposed ? w->n_rows : w->n_in;
    return true;
}

bool weir_bind_is_empty(const binder *b, const weir_parameter *parameter, const weir_block_use *use)
{
    bool is_empty = false;
    for (int32_t i = 0; i < WEIR_TENSOR_DIMS && parameter->dims[i] != NULL; i++)
        is_empty = is_empty || parameter->dims[i](&b->model->shape, use->options) == 0;
    return is_empty;
}

static const weir_parameter *find_parameter(const weir_block *block, const char *name)
{
    const weir_parameter *parameter = block->parameters;
    while (parameter->name != NULL && strcmp(parameter->name, name) != 0) parameter++;
    return parameter->name != NULL ? parameter : NULL;
}

/* Adds the rows of one more parameter of the tensor. Returns NULL, or what is wrong with it. */
static const char *add_fused(
    const binder *b, wanted *w, const weir_parameter *own, const weir_parameter *parameter,
    const weir_block_use *use
)
{
    wanted other = { 0 };
    if (parameter == NULL) return "which is no parameter of this block";
    if (parameter->wanted != NULL && !parameter->wanted(use->options)) return NULL;
    if (weir_bind_is_empty(b, parameter, use)) return NULL;
    if (parameter == own) w->first_row = w->fused_rows;
    if (!set_dims(b, &other, parameter, use)) return "which has a shape that no tensor has";
    if (parameter->kind != own->kind || other.fused_n_in != w->fused_n_in ||
        other.n_experts != w->n_experts)
        return "whose rows do not have the same length and type";
    if (other.fused_n_rows % w->n_groups != 0) return "whose rows do not divide into groups";
    if (!weir_add_i64(&w->fused_rows, w->fused_rows, other.fused_n_rows))
        return "which has a shape that no tensor has";
    return NULL;
}

/* The groups of a fused tensor; of a vector with more dimensions, those of all its rows. */
static int64_t groups_of(const binder *b, const wanted *w)
{
    const char *const name =
        weir_toml_string(weir_arch_choice(weir_toml_get(w->entry, "groups"), b->container), NULL);
    const int64_t n = name != NULL ? weir_shape_integer(&b->model->shape, name) : 1;
    return n > 0 && name != NULL && w->n_in == 1 ? n * (w->n_rows / w->dims[w->n_dims - 1]) : n;
}

bool weir_bind_size(
    binder *b, wanted *w, const weir_parameter *parameter, const weir_block_use *use
)
{
    const weir_toml_node *const names =
        weir_arch_choice(weir_toml_get(w->entry, "fused"), b->container);
    if (!set_dims(b, w, parameter, use)) {
        weir_bind_problem(
            b, "parameter \"%s\" of %s has a shape that no tensor has", w->parameter,
            use->block->name
        );
        return false;
    }
    w->n_groups = groups_of(b, w);
    if (w->n_groups < 1) {
        weir_bind_problem(
            b, "%s: [tensor] \"%s\": groups is no positive integer here", b->model->arch->file,
            w->parameter
        );
        return false;
    }
    for (size_t i = 0; names != NULL && i < weir_toml_size(names); i++) {
        const char *const name = weir_toml_string(weir_toml_at(names, i, NULL), NULL);
        const char *const wrong =
            name != NULL ? add_fused(b, w, parameter, find_parameter(use->block, name), use) : NULL;
        if (wrong == NULL) continue;
        weir_bind_problem(
            b, "%s: [tensor] \"%s\": fused has \"%s\", %s (%s)", b->model->arch->file, w->parameter,
            name, wrong, use->block->name
        );
        return false;
    }
    return true;
}

/* ---- shapes of tensors ----------------------------------------------------------------------- */
typedef struct shape {
    int64_t dims[WEIR_TENSOR_DIMS];
    int32_t n_dims;
} shape;

/* The shape of a tensor with one matrix or, stacked, those of all experts. */
static shape shape_of(const wanted *w, bool is_stacked, bool is_fused)
{
    shape out = { 0 };
    if (is_stacked) out.dims[out.n_dims++] = w->n_experts;
    if (is_fused && (w->n_in > 1 || w->n_groups == 1)) {
        out.dims[out.n_dims++] = w->fused_rows;
        if (w->fused_n_in > 1) out.dims[out.n_dims++] = w->fused_n_in;
        return out;
    }
    for (int32_t i = w->n_experts > 0; i < w->n_dims; i++) out.dims[out.n_dims++] = w->dims[i];
    if (is_fused) out.dims[out.n_dims - 1] *= w->fused_rows / w->n_rows;
    return out;
}

/* The shape of a tensor with the codes of MXFP4 blocks, whose elements `all` has. */
static shape codes_shape(shape all)
{
    shape out = all;
    WEIR_ASSERT(out.n_dims > 0 && out.n_dims < WEIR_TENSOR_DIMS); /* weir_bind_part refused more */
    out.dims[out.n_dims - 1] /= 32;
    out.dims[out.n_dims++] = 16;
    return out;
}

/* Compares without dimensions of 1: [C, 1, K] is [C, K], {H} is {H, 1}. */
static bool has_shape(const weir_tensor *tensor, shape expected)
{
    int64_t want[WEIR_TENSOR_DIMS], got[WEIR_TENSOR_DIMS];
    int n_want = 0, n_got = 0;
    for (int32_t i = 0; i < expected.n_dims; i++) {
        if (expected.dims[i] != 1) want[n_want++] = expected.dims[i];
    }
    for (int i = 0; i < tensor->n_dims; i++) {
        if (tensor->shape[i] != 1) got[n_got++] = tensor->shape[i];
    }
    return n_want == n_got && memcmp(want, got, (size_t)n_want * sizeof *want) == 0;
}

void weir_bind_describe(char *out, size_t size, const int64_t *dims, int32_t n_dims)
{
    size_t n = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < n_dims && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i > 0 ? ", " : "", dims[i]);
}

static void report_shape(binder *b, const wanted *w, const weir_tensor *tensor, bool is_stacked)
{
    char got[160], want[160], fused[200] = "";
    const shape own = shape_of(w, is_stacked, false), all = shape_of(w, is_stacked, true);
    weir_bind_describe(got, sizeof got, tensor->shape, tensor->n_dims);
    weir_bind_describe(want, sizeof want, own.dims, own.n_dims);
    if (w->fused_rows > w->n_rows) {
        char text[160];
        weir_bind_describe(text, sizeof text, all.dims, all.n_dims);
        (void
        )snprintf(fused, sizeof fused, ", or [%s] with the rows of all fused parameters", text);
    }
    weir_bind_problem(b, "tensor %s is [%s], want [%s]%s", tensor->name, got, want, fused);
}

/* The same elements with the matrices one below the other, as if they were one. */
static shape stacked_as_one(shape all)
{
    shape out = { .n_dims = all.n_dims - 1 };
    for (int32_t i = 0; i < out.n_dims; i++) out.dims[i] = all.dims[i + 1];
    out.dims[0] *= all.dims[0];
    return out;
}

/* Where n rows of n_in elements are. The tensor has the expected shape, so nothing here exceeds its
 * elements. */
typedef struct row_range {
    int64_t first, n, n_in;
    weir_row_runs runs;
    bool is_transposed;
} row_range;

static bool locate(
    binder *b, const wanted *w, const weir_tensor *tensor, row_range rows, size_t *offset
)
{
    const weir_dtype_info info = weir_dtype_of(tensor->dtype);
    const int64_t first = rows.first * rows.n_in,
                  count = (weir_row_at(rows.runs, rows.n - 1) + 1) * rows.n_in;
    const bool is_by_row = rows.runs.length < rows.n || rows.is_transposed;
    if (first % info.block_elements != 0 || count % info.block_elements != 0 ||
        (is_by_row && rows.n_in % info.block_elements != 0)) {
        weir_bind_problem(
            b, "tensor %s of %s: the rows of \"%s\" are not whole blocks of %d elements",
            tensor->name, info.name, w->parameter, (int)info.block_elements
        );
        return false;
    }
    *offset = weir_row_bytes(tensor->dtype, first);
    if (*offset <= tensor->bytes && weir_row_bytes(tensor->dtype, count) <= tensor->bytes - *offset)
        return true;
    weir_bind_problem(
        b, "tensor %s has %zu bytes, less than its shape needs", tensor->name, tensor->bytes
    );
    return false;
}

static transform transform_of(binder *b, const wanted *w)
{
    const char *const key = b->container == WEIR_CONTAINER_GGUF ? "gguf_transform" : "hf_transform";
    const char *const text = weir_toml_string(weir_toml_get(w->entry, key), NULL);
    if (text == NULL) return TRANSFORM_NONE;
    if (strcmp(text, "one_plus") == 0) return TRANSFORM_ONE_PLUS;
    if (strcmp(text, "neg_exp") == 0) return TRANSFORM_NEG_EXP;
    weir_bind_problem(
        b, "%s: [tensor] \"%s\" has an unknown transform '%s'", b->model->arch->file, w->parameter,
        text
    );
    return TRANSFORM_NONE;
}

static bool report_blocks(
    binder *b, const wanted *w, const weir_tensor *codes, const weir_tensor *scales
)
{
    weir_bind_problem(
        b,
        "tensors %s and %s are not the codes and exponents of MXFP4 blocks for \"%s\": bytes, "
        "[.., inputs / 32, 16] and [.., inputs / 32]",
        codes->name, scales->name, w->parameter
    );
    return false;
}

/* Blocks of MXFP4 in two tensors; the codes have the shape of the parameter's rows, `all`. Returns
 * false if something else is wrong (reported). */
static bool locate_blocks(
    binder *b, const wanted *w, const weir_tensor *codes, row_range rows, shape all, part *out
)
{
    const weir_tensor *const scales = out->scales;
    shape blocks = all;
    blocks.dims[blocks.n_dims - 1] /= 32;
    if (w->n_in % 32 != 0 || codes->dtype != WEIR_U8 || scales->dtype != WEIR_U8 ||
        !has_shape(scales, blocks))
        return report_blocks(b, w, codes, scales);
    const size_t first = (size_t)rows.first * (size_t)(w->n_in / 32);
    out->data = codes->data != NULL ? codes->data + 16 * first : NULL;
    out->scale_data = scales->data != NULL ? scales->data + first : NULL;
    out->dtype = WEIR_MXFP4;
    return true;
}

static int64_t n_blocks(int64_t n) { return (n + WEIR_SCALED_BLOCK - 1) / WEIR_SCALED_BLOCK; }

static bool is_one_number(const weir_tensor *tensor)
{
    int32_t i = 0;
    while (i < tensor->n_dims && tensor->shape[i] == 1) i++;
    return i == tensor->n_dims;
}

/* Finds the scales of a matrix in FP8. Returns false if they are neither those of its blocks nor
 * one number (reported). */
static bool find_fp8_scales(binder *b, const wanted *w, part *out)
{
    const weir_tensor *const codes = out->tensor;
    if (codes->dtype != WEIR_F8_E4M3 || !weir_bind_find_fp8_scales(b, codes, &out->scales))
        return codes->dtype != WEIR_F8_E4M3;
    if (out->scales == NULL) return true;
    const weir_tensor *const scales = out->scales;
    const int64_t n = codes->n_dims == 2 ? n_blocks(codes->shape[0]) : 0,
                  n_in = codes->n_dims == 2 ? n_blocks(codes->shape[1]) : 0;
    out->has_one_scale = is_one_number(scales);
    const bool fits = out->has_one_scale ||
                      (scales->n_dims == 2 && scales->shape[0] == n && scales->shape[1] == n_in);
    if (n == 0 || (scales->dtype != WEIR_F32 && scales->dtype != WEIR_BF16) || !fits ||
        weir_row_bytes(scales->dtype, out->has_one_scale ? 1 : n * n_in) > scales->bytes) {
        weir_bind_problem(
            b,
            "tensors %s and %s are not FP8 codes of \"%s\" and the scales of their blocks of "
            "%d x %d, or one for all of them, f32 or bf16",
            codes->name, scales->name, w->parameter, WEIR_SCALED_BLOCK, WEIR_SCALED_BLOCK
        );
        return false;
    }
    out->scale_data = scales->data;
    out->dtype = b->model->activations == WEIR_ACTIVATIONS_F32 ? WEIR_F32 : WEIR_BF16;
    return true;
}

/* A matrix whose inputs are the rows of its tensor; with `fused` the outputs of all parameters are
 * side by side in them. Returns false if the tensor is another one (reported). */
static bool bind_columns(binder *b, const wanted *w, bool is_stacked, int64_t expert, part *out)
{
    const weir_tensor *const tensor = out->tensor;
    const int64_t width = w->fused_rows > 0 ? w->fused_rows : w->n_rows;
    const weir_dtype_info info = weir_dtype_of(tensor->dtype);
    shape want = { 0 };
    if (is_stacked) want.dims[want.n_dims++] = w->n_experts;
    want.dims[want.n_dims++] = w->n_in;
    want.dims[want.n_dims++] = width;
    const int64_t n = weir_bind_elements(want.dims, want.n_dims);
    if (n == 0 || !has_shape(tensor, want) || info.block_elements != 1 ||
        tensor->dtype == WEIR_F8_E4M3 || weir_row_bytes(tensor->dtype, n) > tensor->bytes) {
        char got[160], text[160];
        weir_bind_describe(got, sizeof got, tensor->shape, tensor->n_dims);
        weir_bind_describe(text, sizeof text, want.dims, want.n_dims);
        weir_bind_problem(
            b, "tensor %s is [%s] of %s, want [%s] with the inputs first, of f32, f16 or bf16",
            tensor->name, got, info.name, text
        );
        return false;
    }
    const int64_t first = (is_stacked ? expert : 0) * w->n_in * width + w->first_row;
    out->data = tensor->data != NULL ? tensor->data + weir_row_bytes(tensor->dtype, first) : NULL;
    out->runs = (weir_row_runs){ w->n_in, w->n_in };
    out->row_width = width;
    out->is_transposed = true;
    return true;
}

bool weir_bind_factor(binder *b, const char *parameter, const weir_toml_node *entry, float *out)
{
    const weir_toml_node *const keys = weir_toml_get(entry, "hf_factors");
    double factor = 1.0;
    *out = 0.0f;
    if (keys == NULL || b->container != WEIR_CONTAINER_SAFETENSORS) return true;
    for (size_t i = 0; i < weir_toml_size(keys); i++) {
        const char *const key = weir_toml_string(weir_toml_at(keys, i, NULL), NULL);
        weir_meta meta;
        if (key == NULL || !weir_tensor_directory_element(b->model->directory, key, &meta))
            continue;
        const double other = meta.type == WEIR_META_FLOAT ? meta.number : 0.0;
        factor *= meta.type == WEIR_META_INT ? (double)meta.integer : other;
    }
    if (fabs(factor) >= 1e-6 && fabs(factor) <= 1e6) {
        if (factor < 1.0 || factor > 1.0) *out = (float)factor;
        return true;
    }
    weir_bind_problem(
        b, "the settings that multiply \"%s\" are no numbers, or their product %g is out of range",
        parameter, factor
    );
    return false;
}

/* The type of a multiplied matrix; integers, which are no weights, stay what they are. */
static weir_dtype multiplied_dtype(const binder *b, const part *own)
{
    static const unsigned char zero[8];
    float one;
    if (!weir_dtype_of(own->stored).quantised &&
        weir_dequantise(&one, zero, own->stored, 1) != WEIR_OK)
        return own->stored;
    return own->stored == WEIR_BF16 && b->model->activations != WEIR_ACTIVATIONS_F32 ? WEIR_BF16
                                                                                     : WEIR_F32;
}

bool weir_bind_part(binder *b, const wanted *w, const found *f, int64_t expert, part *out)
{
    const weir_tensor *const tensor = f->tensor;
    const bool is_stacked = w->n_experts > 0 && !weir_bind_is_per_expert(f);
    const shape single = shape_of(w, is_stacked, false), all = shape_of(w, is_stacked, true);
    *out = (part){ .tensor = tensor,
                   .dtype = tensor->dtype,
                   .stored = tensor->dtype,
                   .change = transform_of(b, w) };
    weir_bind_mark_used(b, tensor);
    if (!weir_bind_factor(b, w->parameter, w->entry, &out->factor)) return false;
    if (out->factor != 0.0f && w->n_in > 1) out->dtype = multiplied_dtype(b, out);
    if (w->inputs_first) return bind_columns(b, w, is_stacked, expert, out);
    if (!weir_bind_find_scales(b, w, expert, &out->scales)) return false;
    const bool is_split = out->scales != NULL;
    if (is_split && out->factor != 0.0f) {
        weir_bind_problem(
            b, "%s: [tensor] \"%s\": hf_factors do not multiply tensors with hf_scales",
            b->model->arch->file, w->parameter
        );
        return false;
    }
    if (is_split && single.n_dims == WEIR_TENSOR_DIMS) {
        weir_bind_problem(
            b,
            "%s: [tensor] \"%s\": hf_scales is for parameters of up to %d dimensions, this one has "
            "%d",
            b->model->arch->file, w->parameter, WEIR_TENSOR_DIMS - 1, (int)single.n_dims
        );
        return false;
    }
    const bool is_own = has_shape(tensor, is_split ? codes_shape(single) : single);
    const bool is_fused = !is_own && w->fused_rows > 0 &&
                          (has_shape(tensor, is_split ? codes_shape(all) : all) ||
                           (is_stacked && !is_split && has_shape(tensor, stacked_as_one(all))));
    if (!is_own && !is_fused) {
        if (is_split) return report_blocks(b, w, tensor, out->scales);
        report_shape(b, w, tensor, is_stacked);
        return false;
    }
    const int64_t per_matrix = is_own ? w->n_rows : w->fused_rows,
                  before = is_stacked ? expert * per_matrix : 0;
    const int64_t n_groups = is_own ? 1 : w->n_groups;
    const int64_t n_rows = is_own ? w->n_rows : w->fused_n_rows;
    const row_range rows = { .first = before + (is_own ? 0 : w->first_row / n_groups),
                             .n = n_rows,
                             .n_in = is_own ? w->n_in : w->fused_n_in,
                             .runs = { n_rows / n_groups, per_matrix / n_groups },
                             .is_transposed = is_fused && w->is_transposed };
    out->runs = rows.runs;
    out->first_row = rows.first;
    out->is_transposed = rows.is_transposed;
    if (is_split && rows.is_transposed) return report_blocks(b, w, tensor, out->scales);
    if (is_split) return locate_blocks(b, w, tensor, rows, is_own ? single : all, out);
    size_t offset = 0;
    if (!locate(b, w, tensor, rows, &offset)) return false;
    out->data = tensor->data != NULL ? tensor->data + offset : NULL;
    if (rows.is_transposed && weir_dtype_of(out->dtype).quantised) out->dtype = WEIR_F32;
    return w->n_in == 1 || find_fp8_scales(b, w, out);
}
