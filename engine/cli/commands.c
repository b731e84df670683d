/* engine/cli/commands.c - the tables: every command with its options. The work is in the run functions. */
#include "engine/cli/command.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GROUP(name, title) static const weir_option_group name = { title, name##_options, COUNT(name##_options) }
#define KEY_OPTION(flag, placeholder, path) { .name = flag, .value = placeholder, .type = WEIR_OPTION_KEY, .key = path }

/* ---- shared by commands ---- */

static const weir_option model_options[] = {
    { .name = "model", .letter = 'm', .value = "PATH", .type = WEIR_OPTION_KEY, .key = "model.path" },
    KEY_OPTION("arch-dir", "DIR", "model.arch_dir"),
    KEY_OPTION("context", "N", "model.context"),
    KEY_OPTION("memory", "SIZE", "memory.host"),
    KEY_OPTION("kv-format", "F", "kv.format"),
    KEY_OPTION("threads", "N", "kernels.threads"),
    KEY_OPTION("isa", "LEVEL", "kernels.isa"),
    KEY_OPTION("activations", "HOW", "kernels.activations"),
    KEY_OPTION("log-level", "LEVEL", "log.level"),
};
GROUP(model, "Model");

static const weir_option sampling_options[] = {
    { .name = "max-tokens", .letter = 'n', .value = "N", .type = WEIR_OPTION_KEY, .key = "sampling.max_tokens" },
    KEY_OPTION("temperature", "T", "sampling.temperature"),
    KEY_OPTION("top-k", "K", "sampling.top_k"),
    KEY_OPTION("top-p", "P", "sampling.top_p"),
    KEY_OPTION("min-p", "P", "sampling.min_p"),
    KEY_OPTION("repetition-penalty", "R", "sampling.repetition_penalty"),
    KEY_OPTION("presence-penalty", "A", "sampling.presence_penalty"),
    KEY_OPTION("frequency-penalty", "A", "sampling.frequency_penalty"),
    KEY_OPTION("seed", "N", "sampling.seed"),
};
GROUP(sampling, "Sampling");

static const weir_option policy_options[] = {
    KEY_OPTION("policy", "NAME", "kv.policy.name"),
    KEY_OPTION("budget", "ROWS", "kv.policy.budget"),
};
GROUP(policy, "KV policy");

static const weir_option json_options[] = {
    { .name = "json", .type = WEIR_OPTION_FLAG, .help = "Print one JSON object instead of text." },
};
GROUP(json, "Output");

/* ---- one group per command ---- */

static const weir_option serve_options[] = {
    KEY_OPTION("host", "ADDRESS", "server.host"),
    { .name = "port", .letter = 'p', .value = "N", .type = WEIR_OPTION_KEY, .key = "server.port" },
    KEY_OPTION("api-key", "KEY", "server.api_key"),
    KEY_OPTION("api-key-file", "FILE", "server.api_key_file"),
    { .name = "insecure", .type = WEIR_OPTION_KEY_TRUE, .key = "server.insecure" },
    KEY_OPTION("model-name", "NAME", "model.name"),
    KEY_OPTION("max-sequences", "N", "batch.max_sequences"),
    KEY_OPTION("queue", "N", "batch.queue"),
    KEY_OPTION("chunk", "N", "batch.chunk"),
    KEY_OPTION("metrics-compat", "NAME", "server.metrics_compat"),
    KEY_OPTION("reasoning-field", "NAME", "server.reasoning_field"),
    { .name = "plan", .type = WEIR_OPTION_FLAG, .help = "Print the memory plan and exit; exit code 3 when it does not fit." },
};
GROUP(serve, "Server");

static const weir_option generate_options[] = {
    { .name = "prompt", .letter = 'p', .value = "TEXT", .type = WEIR_OPTION_TEXT, .help = "Text to continue, as it is." },
    { .name = "tokens", .value = "LIST", .type = WEIR_OPTION_TEXT, .help = "Token ids to continue: 1,2,3." },
    { .name = "messages",
      .value = "FILE",
      .type = WEIR_OPTION_TEXT,
      .help = "JSON array of chat messages (or an object with \"messages\") to answer." },
    { .name = "json", .type = WEIR_OPTION_FLAG, .help = "Print one JSON object with the text and its tokens." },
};
GROUP(generate, "Prompt");

static const weir_option chat_options[] = {
    { .name = "system", .value = "TEXT", .type = WEIR_OPTION_TEXT, .help = "System message that opens the conversation." },
};
GROUP(chat, "Conversation");

static const weir_option logits_options[] = {
    { .name = "tokens", .value = "LIST", .type = WEIR_OPTION_TEXT, .required = true, .help = "Token ids: 1,2,3." },
    { .name = "out", .value = "FILE", .type = WEIR_OPTION_TEXT, .required = true, .help = "safetensors file to write." },
    { .name = "chunk",
      .value = "N",
      .type = WEIR_OPTION_INT,
      .min = 1,
      .max = INT32_MAX,
      .help = "Tokens per step. Default: batch.chunk." },
    { .name = "decode-from",
      .value = "K",
      .type = WEIR_OPTION_INT,
      .min = 0,
      .max = INT32_MAX,
      .help = "Compute positions from K on one token at a time." },
};
GROUP(logits, "Input and output");

static const weir_option render_options[] = {
    { .name = "messages",
      .value = "FILE",
      .type = WEIR_OPTION_TEXT,
      .required = true,
      .help = "JSON array of chat messages, or an object with \"messages\", \"tools\" and template variables." },
};
GROUP(render, "Input");

static const weir_option bench_options[] = {
    { .name = "prompt",
      .letter = 'p',
      .value = "N",
      .type = WEIR_OPTION_INT,
      .min = 0,
      .max = 1 << 20,
      .help = "Prompt tokens per prefill measurement. Default: 512." },
    { .name = "gen",
      .letter = 'n',
      .value = "N",
      .type = WEIR_OPTION_INT,
      .min = 0,
      .max = 1 << 20,
      .help = "Tokens per decode measurement. Default: 64." },
    { .name = "depth",
      .value = "LIST",
      .type = WEIR_OPTION_LIST,
      .min = 0,
      .max = 1 << 24,
      .help = "Tokens already in the KV store, one row of results each: 0,8192. Default: 0." },
    { .name = "repeat", .value = "N", .type = WEIR_OPTION_INT, .min = 1, .max = 1000, .help = "Measurements per figure. Default: 5." },
    KEY_OPTION("chunk", "N", "batch.chunk"),
    { .name = "explain",
      .type = WEIR_OPTION_FLAG,
      .help = "Print which kernel runs each op, and why the ones before it do not, and exit." },
    { .name = "json", .type = WEIR_OPTION_FLAG, .help = "Print one JSON object instead of a table." },
};
GROUP(bench, "Measurement");

static const weir_option retrieval_options[] = {
    { .name = "items", .value = "FILE", .type = WEIR_OPTION_TEXT, .required = true, .help = "Questions, one JSON object per line." },
    { .name = "limit", .value = "N", .type = WEIR_OPTION_INT, .min = 1, .max = INT32_MAX, .help = "At most so many items. Default: all." },
};
GROUP(retrieval, "Input");

static const weir_option perplexity_options[] = {
    { .name = "text", .value = "FILE", .type = WEIR_OPTION_TEXT, .required = true, .help = "Text to score, UTF-8." },
    { .name = "window",
      .value = "N",
      .type = WEIR_OPTION_INT,
      .min = 2,
      .max = 1 << 24,
      .help = "Tokens per window; each starts from an empty state. Default: 512." },
};
GROUP(perplexity, "Input");

/* ---- the commands ---- */

static const weir_command commands[] = {
    { .name = "serve",
      .usage = "[options]",
      .run = weir_run_serve,
      .summary = "Serves a model through the OpenAI API.",
      .details = "Listens on 127.0.0.1:8080 unless told otherwise. SIGTERM ends it after the running answers.",
      .groups = { &serve, &model, &sampling, &policy } },
    { .name = "generate",
      .usage = "--prompt TEXT | --tokens LIST | --messages FILE [options]",
      .run = weir_run_generate,
      .summary = "Continues a text or answers a conversation, once.",
      .groups = { &generate, &sampling, &model, &policy } },
    { .name = "chat",
      .usage = "[options]",
      .run = weir_run_chat,
      .summary = "Talks to a model in the terminal.",
      .details = "Ctrl-C stops the answer, Ctrl-D ends the conversation.",
      .groups = { &chat, &sampling, &model, &policy } },
    { .name = "logits",
      .usage = "--tokens LIST --out FILE [options]",
      .run = weir_run_logits,
      .summary = "Writes the logits and hidden states of given tokens to a safetensors file.",
      .details = "Tensors: logits f32 [tokens, vocabulary], and hidden.I f32 [tokens, width] after each layer I.",
      .groups = { &logits, &model } },
    { .name = "tokenize",
      .usage = "[options] < LINES",
      .run = weir_run_tokenize,
      .summary = "Reads lines of text, writes {\"ids\": [...], \"text\": decoded} for each.",
      .groups = { &model } },
    { .name = "render",
      .usage = "--messages FILE [options]",
      .run = weir_run_render,
      .summary = "Prints the prompt that the model's chat template makes of a conversation.",
      .groups = { &render, &model } },
    { .name = "bench",
      .usage = "[options]",
      .run = weir_run_bench,
      .summary = "Measures prefill and decode speed, with the machine's read bandwidth beside them.",
      .groups = { &bench, &model } },
    { .name = "eval retrieval",
      .usage = "--items FILE [options]",
      .run = weir_run_eval_retrieval,
      .summary = "Counts exact answers to questions about long contexts.",
      .groups = { &retrieval, &json, &policy, &model } },
    { .name = "eval perplexity",
      .usage = "--text FILE [options]",
      .run = weir_run_eval_perplexity,
      .summary = "Scores a text.",
      .groups = { &perplexity, &json, &policy, &model } },
};

const weir_command *weir_commands(size_t *n)
{
    *n = COUNT(commands);
    return commands;
}
