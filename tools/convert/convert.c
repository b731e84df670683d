#include "tools/convert/convert.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/processors.h"
#include "tools/convert/from_checkpoint.h"
#include "tools/convert/from_gguf.h"
#include "tools/convert/keys.h"
#include "tools/convert/tokenizer_keys.h"

/* What is open while a file is written. */
typedef struct conversion {
    const weir_convert_options *options;
    weir_convert_result *result;
    weir_tensor_directory *directory;
    weir_gguf_writer *writer;
    weir_plan plan;
    weir_imatrix imatrix;
    weir_mix mix;
    weir_tokenizer *tokenizer; /* of a checkpoint; NULL: none */
    weir_error *error;
} conversion;

static void count(conversion *c)
{
    weir_convert_result *const r = c->result;
    r->n_tensors = c->plan.n;
    r->bytes = weir_gguf_writer_bytes(c->writer);
    for (size_t i = 0; i < c->plan.n; i++) {
        const weir_planned *const t = &c->plan.tensors[i];
        r->n_elements += t->n_rows * t->n_in;
        r->n_requantised +=
            t->from != t->to && weir_dtype_of(t->from).quantised && weir_dtype_of(t->to).quantised;
        r->source_bytes += weir_row_bytes(t->from, t->n_in) * (uint64_t)t->n_rows;
    }
}

/* The types of few bits want an importance matrix. */
static weir_status check_importance(const conversion *c)
{
    for (size_t i = 0; c->options->imatrix == NULL && i < c->plan.n; i++) {
        const weir_planned *const t = &c->plan.tensors[i];
        if (!t->is_copied && weir_needs_importance(t->to, t->name))
            return weir_error_set(
                c->error, WEIR_ECONFIG,
                "--type %s makes %s %s, which loses too much without an importance matrix: make "
                "one with `weir imatrix` and give it as --imatrix, or take q2_k, iq3_s or more",
                c->mix.name, t->name, weir_dtype_of(t->to).name
            );
    }
    return WEIR_OK;
}

static weir_status write_plan(conversion *c, const weir_row_reader *reader)
{
    const weir_imatrix *const imatrix = c->options->imatrix != NULL ? &c->imatrix : NULL;
    weir_importance_use *const use = &c->result->importance;
    WEIR_TRY(check_importance(c));
    WEIR_TRY(weir_plan_write(&c->plan, c->writer, reader, imatrix, use, c->options->out, c->error));
    if (imatrix != NULL && use->n_found == 0)
        return weir_error_set(
            c->error, WEIR_EMISMATCH,
            use->n_quantised == 0 ? "%s: nothing is quantised, so no importance matrix is used"
                                  : "%s: has none of the model's tensors: it is of another one",
            c->options->imatrix
        );
    count(c);
    return WEIR_OK;
}

static weir_status convert_gguf(conversion *c)
{
    const weir_row_reader reader = weir_gguf_row_reader(c->directory);
    weir_meta unused;
    c->result->has_tokenizer =
        weir_tensor_directory_meta(c->directory, "tokenizer.ggml.tokens", &unused);
    WEIR_TRY(weir_plan_from_gguf(&c->plan, c->writer, c->directory, &c->mix, c->error));
    WEIR_TRY(write_plan(c, &reader));
    return weir_gguf_writer_finish(c->writer, c->error);
}

/* ---- checkpoints ----------------------------------------------------------------------------- */
/* The name of the folder or file, without its ending. */
static void put_name(const conversion *c)
{
    char name[256];
    const char *const path = weir_tensor_directory_path(c->directory);
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    size_t begin = length;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    (void)snprintf(name, sizeof name, "%.*s", (int)(length - begin), path + begin);
    char *const end = strstr(name, ".safetensors");
    if (end != NULL) *end = '\0';
    weir_gguf_put_text(c->writer, "general.name", name, strlen(name));
}

/* Tensors that neither the model uses nor its arch file skips on purpose. */
static void count_left_out(const conversion *c, const weir_model *model)
{
    const char *first = NULL;
    c->result->n_left_out = weir_model_unused(model, &first, 1);
    if (first != NULL) (void)snprintf(c->result->left_out, sizeof c->result->left_out, "%s", first);
}

static weir_status write_checkpoint(
    conversion *c, const weir_written_model *written, weir_checkpoint *checkpoint,
    weir_arch_set *archs, weir_stream *stream
)
{
    const weir_row_reader reader = weir_checkpoint_row_reader(checkpoint);
    weir_gguf_put_text(c->writer, "general.architecture", written->name, strlen(written->name));
    weir_gguf_put_text(c->writer, "general.type", "model", strlen("model"));
    put_name(c);
    weir_gguf_put_u32(c->writer, "general.file_type", c->mix.file_type);
    weir_gguf_put_u32(c->writer, "general.quantization_version", 2);
    WEIR_TRY(weir_put_keys(c->writer, written, c->error));
    if (c->options->no_tokenizer)
        weir_put_no_tokenizer(c->writer);
    else
        WEIR_TRY(weir_put_tokenizer(
            c->writer, c->directory, weir_model_shape(written->model)->n_vocab, &c->tokenizer,
            c->error
        ));
    c->result->has_tokenizer = c->tokenizer != NULL;
    c->result->has_charsmap = c->tokenizer != NULL && weir_tokenizer_has_charsmap(c->tokenizer);
    WEIR_TRY(weir_plan_from_checkpoint(&c->plan, checkpoint, &c->mix, c->error));
    WEIR_TRY(write_plan(c, &reader));
    WEIR_TRY(weir_check_written(weir_gguf_writer_path(c->writer), written, archs, stream, c->error)
    );
    if (c->tokenizer != NULL)
        WEIR_TRY(weir_check_tokenizer(
            weir_gguf_writer_path(c->writer), c->tokenizer, c->result->differing, c->error
        ));
    return weir_gguf_writer_finish(c->writer, c->error);
}

static weir_status convert_bound(
    conversion *c, const weir_model *model, weir_arch_set *archs, weir_stream *stream
)
{
    weir_checkpoint *checkpoint = NULL;
    weir_written_model written = { .model = model, .directory = c->directory };
    WEIR_TRY(weir_arch_written_as(
        &written.arch, &written.name, archs, weir_model_arch_of(model), c->error
    ));
    count_left_out(c, model);
    weir_status status =
        weir_checkpoint_open(&checkpoint, model, written.arch, c->directory, c->error);
    if (status == WEIR_OK) status = write_checkpoint(c, &written, checkpoint, archs, stream);
    weir_checkpoint_close(checkpoint);
    return status;
}

static weir_status convert_checkpoint(conversion *c)
{
    const weir_arch *arch;
    weir_arch_set *archs = NULL;
    weir_stream *stream = NULL;
    weir_model *model = NULL;
    /* f32: what has to be computed (FP8 with scales) is not rounded in between. */
    const weir_model_settings settings = { .activations = WEIR_ACTIVATIONS_F32 };
    const weir_stream_options options = { .n_threads = c->options->n_threads };
    weir_status status = weir_arch_set_open(&archs, c->options->arch_dir, NULL, c->error);
    if (status == WEIR_OK) status = weir_arch_match(&arch, archs, c->directory, c->error);
    if (status == WEIR_OK) status = weir_stream_open(&stream, &options, c->error);
    if (status == WEIR_OK)
        status = weir_model_bind(&model, c->directory, arch, stream, &settings, c->error);
    if (status == WEIR_OK) status = convert_bound(c, model, archs, stream);
    weir_model_close(model);
    weir_stream_close(stream);
    weir_arch_set_close(archs);
    return status;
}

/* The file may not be one that it is made of. */
static weir_status check_out(const conversion *c)
{
    struct stat own, other;
    const char *const out = c->options->out;
    if (stat(out, &own) != 0) return WEIR_OK;
    if (!S_ISREG(own.st_mode))
        return weir_error_set(c->error, WEIR_EINVAL, "%s: is no regular file", out);
    for (int32_t i = 0; i < weir_tensor_directory_files(c->directory); i++) {
        const char *const path = weir_tensor_directory_file(c->directory, i);
        if (stat(path, &other) == 0 && own.st_dev == other.st_dev && own.st_ino == other.st_ino)
            return weir_error_set(
                c->error, WEIR_EINVAL, "%s: is the model itself; give another name", out
            );
    }
    return WEIR_OK;
}

static weir_status run(conversion *c)
{
    WEIR_TRY(weir_tensor_directory_open(&c->directory, c->options->model, c->error));
    WEIR_TRY(check_out(c));
    if (c->options->imatrix != NULL)
        WEIR_TRY(weir_imatrix_open(&c->imatrix, c->options->imatrix, c->error));
    return weir_tensor_directory_container(c->directory) == WEIR_CONTAINER_GGUF
               ? convert_gguf(c)
               : convert_checkpoint(c);
}

weir_status weir_convert(
    weir_convert_result *result, const weir_convert_options *options, weir_error *error
)
{
    const int before = omp_get_max_threads();
    *result = (weir_convert_result){ 0 };
    conversion c = { .options = options,
                     .result = result,
                     .writer = weir_gguf_writer_new(),
                     .mix = options->mix,
                     .error = error };
    c.mix.has_importance = options->imatrix != NULL;
    if (c.writer == NULL) return weir_error_set(error, WEIR_ENOMEM, "no memory for a GGUF file");
    omp_set_num_threads(options->n_threads > 0 ? options->n_threads : weir_processors(NULL));
    const weir_status status = run(&c);
    omp_set_num_threads(before);
    weir_gguf_writer_close(c.writer);
    weir_tokenizer_close(c.tokenizer);
    weir_plan_free(&c.plan);
    weir_imatrix_close(&c.imatrix);
    weir_tensor_directory_close(c.directory);
    return status;
}
