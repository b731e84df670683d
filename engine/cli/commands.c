/* engine/cli/commands.c - the tables of commands and their options. The run functions are
 * elsewhere. */
#include "engine/cli/command.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define GROUP(name, title)                                                                         \
    static const weir_option_group name = { title, name##_options, COUNT(name##_options) }

/* Rows of option tables. Fields that only some of them set come last: .letter, .required. */
#define KEY(flag, placeholder, path, ...)                                                          \
    { .name = flag, .value = placeholder, .type = WEIR_OPTION_KEY, .key = path, __VA_ARGS__ }
#define FLAG(flag, text) { .name = flag, .type = WEIR_OPTION_FLAG, .help = text }
#define TEXT(flag, placeholder, text, ...)                                                         \
    { .name = flag, .value = placeholder, .type = WEIR_OPTION_TEXT, .help = text, __VA_ARGS__ }
#define RANGED(flag, placeholder, kind, least, most, text, ...)                                    \
    { .name = flag,                                                                                \
      .value = placeholder,                                                                        \
      .type = kind,                                                                                \
      .min = least,                                                                                \
      .max = most,                                                                                 \
      .help = text,                                                                                \
      __VA_ARGS__ }
#define INT(flag, placeholder, least, most, ...)                                                   \
    RANGED(flag, placeholder, WEIR_OPTION_INT, least, most, __VA_ARGS__)
#define LIST(flag, least, most, ...)                                                               \
    RANGED(flag, "LIST", WEIR_OPTION_LIST, least, most, __VA_ARGS__)

/* ---- shared by commands ---------------------------------------------------------------------- */

/* The option group of all commands; `plan` has its own, since its --context is a list. */
#define MODEL_FILE_OPTIONS                                                                         \
    KEY("model", "PATH", "model.path", .letter = 'm'), KEY("arch-dir", "DIR", "model.arch_dir")
#define MODEL_RUN_OPTIONS                                                                          \
    KEY("memory", "SIZE", "memory.host"), KEY("disk", "SIZE", "memory.disk"),                      \
        KEY("kv-format", "F", "kv.format"), KEY("threads", "N", "kernels.threads"),                \
        KEY("isa", "LEVEL", "kernels.isa"), KEY("activations", "HOW", "kernels.activations"),      \
        KEY("log-level", "LEVEL", "log.level")
#define BATCH_OPTIONS                                                                              \
    KEY("max-sequences", "N", "batch.max_sequences"), KEY("queue", "N", "batch.queue"),            \
        KEY("chunk", "N", "batch.chunk")
#define WINDOW_OPTION(tokens)                                                                      \
    INT("window", "N", 2, 1 << 24,                                                                 \
        "Tokens per window; each starts from an empty state. Default: " tokens ".")
#define EXPLAIN_OPTION(policies)                                                                   \
    FLAG(                                                                                          \
        "explain",                                                                                 \
        "Print which kernel runs each op, why the ones before it do not, and what observing "      \
        "costs " policies "; and exit."                                                            \
    )
#define SCORED_TEXT_OPTION                                                                         \
    TEXT("text", "FILE", "Text to score, UTF-8; - is stdin.", .required = true)

static const weir_option model_options[] = { MODEL_FILE_OPTIONS,
                                             KEY("context", "N", "model.context"),
                                             MODEL_RUN_OPTIONS };
GROUP(model, "Model");
static const weir_option planned_options[] = { MODEL_FILE_OPTIONS, MODEL_RUN_OPTIONS };
GROUP(planned, "Model");

static const weir_option sampling_options[] = {
    KEY("max-tokens", "N", "sampling.max_tokens", .letter = 'n'),
    KEY("temperature", "T", "sampling.temperature"),
    KEY("top-k", "K", "sampling.top_k"),
    KEY("top-p", "P", "sampling.top_p"),
    KEY("min-p", "P", "sampling.min_p"),
    KEY("repetition-penalty", "R", "sampling.repetition_penalty"),
    KEY("presence-penalty", "A", "sampling.presence_penalty"),
    KEY("frequency-penalty", "A", "sampling.frequency_penalty"),
    KEY("seed", "N", "sampling.seed"),
};
GROUP(sampling, "Sampling");

static const weir_option policy_options[] = {
    KEY("policy", "NAME", "kv.policy.name"),
    KEY("budget", "ROWS", "kv.policy.budget"),
    KEY("policy-options", "LIST", "kv.policy.options"),
    KEY("calibration", "FILE", "kv.policy.calibration"),
};
GROUP(policy, "KV policy");

static const weir_option json_options[] = {
    FLAG("json", "Print one JSON object instead of text."),
};
GROUP(json, "Output");

/* ---- one group per command ------------------------------------------------------------------- */

static const weir_option serve_options[] = {
    KEY("host", "ADDRESS", "server.host"),
    KEY("port", "N", "server.port", .letter = 'p'),
    KEY("api-key", "KEY", "server.api_key"),
    KEY("api-key-file", "FILE", "server.api_key_file"),
    { .name = "insecure", .type = WEIR_OPTION_KEY_TRUE, .key = "server.insecure" },
    KEY("model-name", "NAME", "model.name"),
    BATCH_OPTIONS,
    KEY("kv-per-request", "SIZE", "server.kv_per_request"),
    KEY("kv-per-key", "SIZE", "server.kv_per_key"),
    KEY("metrics-compat", "NAME", "server.metrics_compat"),
    KEY("reasoning-field", "NAME", "server.reasoning_field"),
    FLAG("plan", "Print the memory plan and exit; exit code 3 if it does not fit."),
    EXPLAIN_OPTION("the configured KV policy"),
};
GROUP(serve, "Server");

static const weir_option batch_options[] = { BATCH_OPTIONS };
GROUP(batch, "Batch");

static const weir_option report_options[] = {
    LIST(
        "context", 0, 1 << 30,
        "Window of a sequence in tokens; 0: what the model was trained for. With --report, the "
        "contexts of the tables: 2048,32768. "
        "[model.context]"
    ),
    FLAG(
        "report", "Print the memory and time that a model takes by context, batch, KV format, GPU "
                  "and number of devices, whether or not it fits this machine."
    ),
    TEXT(
        "shape", "LIST",
        "Known models to report on in place of --model: llama-2-7b,deepseek-v3, or all."
    ),
    TEXT("format", "LIST", "KV formats: f16,q8_0,turbo3. Tables for one format show the first."),
    LIST("batch", 1, 1 << 16, "Sequences at a time: 1,8,32."),
    LIST("bandwidth", 1, 1 << 20, "Of memory, in GB/s: 60,3350."),
    TEXT(
        "weights", "TYPE",
        "Type of the weights: bf16, q8_0, q4_k ... Default: bf16, or the type in the model file."
    ),
    TEXT(
        "assumptions", "NAME",
        "engine, or seed: the figures of a widely copied analysis, with its errors; without "
        "--shape, of llama-2-7b. Default: engine."
    ),
    TEXT("svg", "FILE", "Also write a plot of KV over context."),
};
GROUP(report, "Report");

static const weir_option text_options[] = {
    TEXT("prompt", "TEXT", "The text, unchanged.", .letter = 'p'),
    TEXT("file", "FILE", "A file that holds the text; - is stdin.", .letter = 'f'),
    TEXT("tokens", "LIST", "Its token ids: 1,2,3."),
    TEXT(
        "messages", "FILE",
        "A conversation: JSON array of chat messages, or an object with \"messages\"; - is stdin."
    ),
};
GROUP(text, "Text");

static const weir_option generate_options[] = {
    TEXT(
        "session", "NAME",
        "Continue the session of this name in sessions.dir, and save the text with its answer "
        "there."
    ),
    FLAG("json", "Print one JSON object with the text and its tokens."),
    EXPLAIN_OPTION("the configured KV policy"),
};
GROUP(generate, "Answer");

static const weir_option chat_options[] = {
    TEXT("system", "TEXT", "System message that opens the conversation."),
};
GROUP(chat, "Conversation");

static const weir_option logits_options[] = {
    TEXT("tokens", "LIST", "Token ids: 1,2,3.", .required = true),
    TEXT("out", "FILE", "safetensors file to write.", .required = true),
    INT("chunk", "N", 1, INT32_MAX, "Tokens per step. Default: batch.chunk."),
    INT("decode-from", "K", 0, INT32_MAX, "Compute positions from K on one token at a time."),
};
GROUP(logits, "Input and output");

static const weir_option render_options[] = {
    TEXT(
        "messages", "FILE",
        "JSON array of chat messages, or an object with \"messages\", \"tools\" and template "
        "variables; - is stdin.",
        .required = true
    ),
};
GROUP(render, "Input");

static const weir_option bench_options[] = {
    INT("prompt", "N", 0, 1 << 20, "Prompt tokens per prefill measurement. Default: 512.",
        .letter = 'p'),
    INT("gen", "N", 0, 1 << 20, "Tokens per decode measurement. Default: 64.", .letter = 'n'),
    LIST(
        "depth", 0, 1 << 24,
        "Tokens already in the KV store, one row of results each: 0,8192. Default: 0."
    ),
    INT("repeat", "N", 1, 1000, "Measurements per figure. Default: 5."),
    FLAG(
        "synthetic-kv",
        "Fill the KV rows of each depth with noise instead of computing a prompt that long, and "
        "measure no prefill: for depths that would take too long to compute."
    ),
    TEXT(
        "policies", "LIST",
        "Measure decoding with these KV policies, NAME or NAME:OPTIONS separated by ;, compared "
        "with a plain cache of --budget rows, in turns of --gen tokens (default: 128). --depth is "
        "the length of the prompt, which is noise."
    ),
    INT("pairs", "N", 1, 64, "Turns of each with --policies. Default: 7."),
    KEY("chunk", "N", "batch.chunk"),
    EXPLAIN_OPTION("each KV policy"),
    FLAG("json", "Print one JSON object instead of a table."),
};
GROUP(bench, "Measurement");

static const weir_option retrieval_options[] = {
    TEXT("items", "FILE", "Questions, one JSON object per line; - is stdin.", .required = true),
    INT("limit", "N", 1, INT32_MAX, "Maximum number of items. Default: all."),
    TEXT(
        "svg", "FILE",
        "Also write a plot: a heat map of length and depth if all items have depths, else accuracy "
        "over length."
    ),
};
GROUP(retrieval, "Input and output");

static const weir_option items_options[] = {
    TEXT(
        "task", "NAME",
        "niah_single_1, niah_single_2, niah_single_3, niah_multikey_1, niah_multikey_2, "
        "niah_multikey_3, niah_multivalue, "
        "niah_multiquery, vt, cwe, fwe, qa_1, qa_2, niah_grid, dfs, dfs_traced, dfs_probe, or all "
        "of them.",
        .required = true
    ),
    LIST(
        "length", 16, 1 << 20, "Tokens of prompt and answer together, never exceeded: 1024,4096.",
        .required = true
    ),
    INT("samples", "N", 1, 100000, "Per task and length. Default: 50."),
    INT("seed", "N", 0, INT64_MAX, "Names the samples. Default: 42."),
    TEXT(
        "text", "FILE",
        "Prose to hide needles in, UTF-8; - is stdin. Default: the end of War and Peace."
    ),
    TEXT(
        "questions", "FILE",
        "JSON in the format of SQuAD for qa_1, of HotpotQA (distractor setting) for qa_2."
    ),
    TEXT("out", "FILE", "Output file, one JSON object per line.", .required = true),
};
GROUP(items, "Items");

static const weir_option constructed_options[] = {
    TEXT("out", "DIR", "Folder for config.json and model.safetensors.", .required = true),
    INT("vocabulary", "N", 16, 8192, "Tokens. Default: 4096."),
    INT("heads", "N", 1, 16, "Query heads. Default: 2."),
    INT("kv-heads", "N", 1, 4, "KV heads, all of which are needed. Default: 2."),
    INT("window", "N", 2, 1 << 20, "Sliding window of its attention. Default: none."),
};
GROUP(constructed, "Model to write");

static const weir_option tokens_model_options[] = { MODEL_FILE_OPTIONS,
                                                    KEY("log-level", "LEVEL", "log.level") };
GROUP(tokens_model, "Model");

static const weir_option matrix_options[] = {
    TEXT("out", "DIR", "Folder of the results; created if missing.", .required = true),
    TEXT("items", "FILE", "Questions, as for `weir eval retrieval`."),
    TEXT("text", "FILE", "Text to score, as for `weir eval perplexity`."),
    TEXT(
        "policies", "LIST",
        "NAME or NAME:OPTIONS, separated by ;. Default: thirteen methods, with windows that fit "
        "small budgets; and triattention with "
        "--calibration."
    ),
    KEY("calibration", "FILE", "kv.policy.calibration"),
    TEXT("budgets", "LIST", "Rows, or percent of each text. Default: 50%,25%,12%."),
    TEXT("formats", "LIST", "KV formats. Default: kv.format."),
    INT("limit", "N", 1, 1 << 24, "Maximum number of items. Default: all."),
    INT("window", "N", 2, 1 << 24, "Tokens per window of the text. Default: 512."),
};
GROUP(matrix, "Measurement");

static const weir_option calibrate_options[] = {
    TEXT("text", "FILE", "Text like that of later use, UTF-8; - is stdin.", .required = true),
    TEXT("out", "FILE", "Output file for the statistics.", .required = true),
    WINDOW_OPTION("1024"),
};
GROUP(calibrate, "Input and output");

static const weir_option perplexity_options[] = {
    SCORED_TEXT_OPTION,
    WINDOW_OPTION("512"),
    FLAG(
        "by-position", "Also show the score by position in the window, in at most 32 equal parts "
                       "of 64 tokens or more."
    ),
    FLAG(
        "stream", "One long stream instead of windows: as many tokens as the text has and the "
                  "context takes (--context)."
    ),
};
GROUP(perplexity, "Input");

static const weir_option kv_quality_options[] = {
    SCORED_TEXT_OPTION,
    TEXT(
        "formats", "LIST",
        "What to measure: q8_0,q8_0/turbo4. Default: every format that the model's heads allow, "
        "and some pairs."
    ),
    WINDOW_OPTION("512"),
    INT("limit", "N", 1, INT32_MAX, "Maximum number of windows. Default: all."),
    TEXT(
        "items", "LIST",
        "Files of questions for eval retrieval, a.jsonl,b.jsonl: correct answers are counted for "
        "each format."
    ),
    INT("item-limit", "N", 1, INT32_MAX, "Maximum number of questions per file. Default: all."),
};
GROUP(kv_quality, "Input");

static const weir_option state_quality_options[] = {
    SCORED_TEXT_OPTION,
    WINDOW_OPTION("512"),
    INT("before", "N", 1, 1 << 24,
        "Tokens of each window that are computed before its state is saved, rounded down to whole "
        "blocks of prompts. Default: half of them."),
    INT("limit", "N", 1, INT32_MAX, "Maximum number of windows. Default: all."),
};
GROUP(state_quality, "Input");

static const weir_option sessions_options[] = {
    KEY("dir", "DIR", "sessions.dir"),
};
GROUP(sessions, "Sessions");

static const weir_option session_options[] = {
    TEXT("name", "NAME", "The session's name.", .required = true),
};
GROUP(session, "Session");

#define DATABASE_OPTION                                                                            \
    TEXT("dir", "DIR", "Folder of the state database.", .required = true, .letter = 'd')

static const weir_option db_create_options[] = {
    DATABASE_OPTION,
    TEXT(
        "states", "FORM",
        "How states are stored: exact, or with keys and values of CoDA layers in int8 or int4. "
        "Default: exact."
    ),
    FLAG(
        "no-vectors", "Store no vectors: states are found by name only, and each is smaller by 4 "
                      "bytes per dimension of the model."
    ),
};
GROUP(db_create, "Database");

static const weir_option db_ingest_options[] = {
    DATABASE_OPTION,
    TEXT("label", "TEXT", "Title of the document; its name is made from it."),
    TEXT("metadata", "JSON", "An object of at most 1024 bytes that is stored with the state."),
    TEXT(
        "documents", "FILE",
        "Many documents instead of one: a JSON object per line with \"label\", \"text\" and "
        "optionally \"metadata\"; - is stdin."
    ),
};
GROUP(db_ingest, "Documents");

static const weir_option db_list_options[] = {
    DATABASE_OPTION,
    INT("limit", "N", 1, INT32_MAX, "Maximum number. Default: all."),
    FLAG("metadata", "With --json, also the metadata of each."),
    FLAG("json", "Print one JSON object per line."),
};
GROUP(db_list, "Database");

static const weir_option db_query_options[] = {
    DATABASE_OPTION,
    TEXT("question", "TEXT", "What is asked.", .required = true),
    TEXT("state", "NAME", "The state to continue. Default: the nearest to the question."),
    INT("nearest", "K", 1, 1024, "Print the K nearest states and their similarity, and no answer."),
    FLAG(
        "no-chat", "Put \"Question:\" before the question and \"Answer:\" after it instead of "
                   "using the chat template, as for models without one."
    ),
    FLAG("plain", "Put nothing around the question: it directly follows the document."),
    FLAG("json", "Print JSON with the state, the text and its tokens."),
};
GROUP(db_query, "Question");

static const weir_option db_merge_options[] = {
    DATABASE_OPTION,
    TEXT("earlier", "NAME", "The state whose banks are merged in.", .required = true),
    TEXT("later", "NAME", "The state that the new one continues.", .required = true),
    TEXT("label", "TEXT", "Title of the new state.", .required = true),
    TEXT(
        "metadata", "JSON",
        "An object that is stored with it, in addition to \"merged\" with both names."
    ),
    FLAG("json", "Print one JSON object instead of text."),
};
GROUP(db_merge, "States");

static const weir_option db_delete_options[] = {
    DATABASE_OPTION,
    TEXT("name", "NAME", "The state's name.", .required = true),
};
GROUP(db_delete, "Database");

/* ---- the commands ---------------------------------------------------------------------------- */

static const weir_command commands[] = {
    { .name = "serve",
      .usage = "[options]",
      .run = weir_run_serve,
      .summary = "Serves a model through the OpenAI API.",
      .details = "Listens on 127.0.0.1:8080 by default. SIGTERM ends it after the running answers.",
      .groups = { &serve, &model, &sampling, &policy } },
    { .name = "plan",
      .usage = "[options]",
      .run = weir_run_plan,
      .summary = "Prints how memory.host will be used; exit code 3 if the plan does not fit.",
      .details =
          "The same plan as `serve --plan`: every account, the KV pages that are left, and the "
          "window of a sequence. With --report, tables of what the model takes on other devices.",
      .groups = { &json, &report, &batch, &planned, &policy } },
    { .name = "generate",
      .usage = "TEXT | --prompt TEXT | --file FILE | --tokens LIST | --messages FILE [options]",
      .word = "prompt",
      .run = weir_run_generate,
      .summary = "Continues a text or answers a conversation, once.",
      .details = "Without a text it reads standard input, without the last newline: `echo hi | "
                 "weir generate`.",
      .groups = { &text, &generate, &sampling, &model, &policy } },
    { .name = "chat",
      .usage = "[options]",
      .run = weir_run_chat,
      .summary = "Talks to a model in the terminal.",
      .details = "Ctrl-C stops the answer, Ctrl-D ends the conversation.",
      .groups = { &chat, &sampling, &model, &policy } },
    { .name = "session list",
      .usage = "--dir DIR [options]",
      .run = weir_run_session_list,
      .summary = "Lists the saved sessions of a folder: name, tokens, bytes, and the problem of "
                 "damaged ones.",
      .groups = { &sessions, &json } },
    { .name = "session save",
      .usage = "--dir DIR --name NAME --file FILE | --prompt TEXT | --messages FILE",
      .run = weir_run_session_save,
      .summary = "Computes a text and saves it, so that prompts can continue it.",
      .groups = { &sessions, &session, &text, &model, &policy } },
    { .name = "session restore",
      .usage = "--dir DIR --name NAME [options]",
      .run = weir_run_session_restore,
      .summary = "Restores a session and prints how long it took: checks that it is complete and "
                 "fits the model.",
      .groups = { &sessions, &session, &model, &policy } },
    { .name = "session delete",
      .usage = "--dir DIR --name NAME",
      .run = weir_run_session_delete,
      .summary = "Deletes a saved session.",
      .groups = { &sessions, &session } },
    { .name = "db create",
      .usage = "--dir DIR [options]",
      .run = weir_run_db_create,
      .summary = "Creates an empty database of a model's states: documents that it has computed, "
                 "to answer questions from.",
      .groups = { &db_create, &model } },
    { .name = "db ingest",
      .usage = "--dir DIR --label TEXT --file FILE | --prompt TEXT | --documents FILE",
      .run = weir_run_db_ingest,
      .summary = "Computes documents and stores their states in a database.",
      .details = "A conversation (--messages) is stored without the beginning of an answer, so "
                 "that a question can follow. A document that already has a state is skipped, so "
                 "the same command continues after it was interrupted.",
      .groups = { &db_ingest, &text, &model } },
    { .name = "db list",
      .usage = "--dir DIR [options]",
      .run = weir_run_db_list,
      .summary = "Lists the states of a database, newest first.",
      .groups = { &db_list } },
    { .name = "db query",
      .usage = "--dir DIR --question TEXT [options]",
      .run = weir_run_db_query,
      .summary = "Answers a question from the nearest state, without computing the document again.",
      .groups = { &db_query, &sampling, &model } },
    { .name = "db merge",
      .usage = "--dir DIR --earlier NAME --later NAME --label TEXT",
      .run = weir_run_db_merge,
      .summary = "Merges two states into one, for models whose layers are all CoDA.",
      .details = "It continues the later one and has the contents of both banks, as far as they "
                 "fit. There is no guarantee that it knows what both knew: measure it.",
      .groups = { &db_merge, &model } },
    { .name = "db delete",
      .usage = "--dir DIR --name NAME",
      .run = weir_run_db_delete,
      .summary = "Deletes a state.",
      .groups = { &db_delete } },
    { .name = "logits",
      .usage = "--tokens LIST --out FILE [options]",
      .run = weir_run_logits,
      .summary = "Writes the logits and hidden states of given tokens to a safetensors file.",
      .details = "Tensors: logits f32 [tokens, vocabulary], and hidden.I f32 [tokens, width] after "
                 "each layer I.",
      .groups = { &logits, &model } },
    { .name = "tokenize",
      .usage = "[options] < LINES",
      .run = weir_run_tokenize,
      .summary = "Reads lines of text, writes {\"ids\": [...], \"text\": decoded} for each.",
      .groups = { &model } },
    { .name = "render",
      .usage = "--messages FILE [options]",
      .run = weir_run_render,
      .summary = "Prints a conversation as rendered by the model's chat template.",
      .groups = { &render, &model } },
    { .name = "bench",
      .usage = "[options]",
      .run = weir_run_bench,
      .summary =
          "Measures prefill and decode speed, and the machine's read bandwidth in the same run.",
      .details = "With memory.disk, also the bytes that each token reads from disk, and the speed "
                 "of the disk.",
      .groups = { &bench, &model, &policy } },
    { .name = "calibrate",
      .usage = "--text FILE --out FILE [options]",
      .run = weir_run_calibrate,
      .summary = "Measures the model's queries over a text, for KV policies that score keys with "
                 "them (triattention).",
      .details = "A few tens of thousands of tokens are enough. The file names its model; other "
                 "models refuse it.",
      .groups = { &calibrate, &model } },
    { .name = "eval retrieval",
      .usage = "--items FILE [options]",
      .run = weir_run_eval_retrieval,
      .summary = "Counts exact answers to questions about long contexts.",
      .groups = { &retrieval, &json, &policy, &model } },
    { .name = "eval generate",
      .usage = "--task NAME --length LIST --out FILE [options]",
      .run = weir_run_eval_generate,
      .summary = "Writes questions about long contexts for `eval retrieval`: the tasks of RULER, "
                 "needles by depth, depth-first searches.",
      .details = "Lengths are counted with the model's tokenizer and chat template. The same seed "
                 "gives the same samples. With `all`, tasks that cannot be made this short are "
                 "skipped, with a message.",
      .groups = { &items, &tokens_model } },
    { .name = "eval constructed",
      .usage = "--out DIR [options]",
      .run = weir_run_eval_constructed,
      .summary = "Writes a model that needs no training: after `key value .. key` it says `value` "
                 "exactly if that KV row is still there.",
      .details = "Token 0 means \"none\". It has no tokenizer: prompts are ids (`weir "
                 "generate --tokens`).",
      .groups = { &constructed } },
    { .name = "eval matrix",
      .usage = "--out DIR --items FILE | --text FILE [options]",
      .run = weir_run_eval_matrix,
      .summary =
          "Accuracy and perplexity by KV policy, budget and format: JSON lines, CSV and plots.",
      .details = "After an interruption, the same command continues.",
      .groups = { &matrix, &model } },
    { .name = "eval policies",
      .usage = "[options]",
      .run = weir_run_eval_policies,
      .summary = "Lists the KV policies: what each keeps, and its options with their defaults.",
      .groups = { NULL } },
    { .name = "eval perplexity",
      .usage = "--text FILE [options]",
      .run = weir_run_eval_perplexity,
      .summary = "Scores a text.",
      .groups = { &perplexity, &json, &policy, &model } },
    { .name = "eval kv-quality",
      .usage = "--text FILE [options]",
      .run = weir_run_eval_kv_quality,
      .summary = "Measures what each KV format costs against f32: perplexity, divergence of the "
                 "next token, bytes, exact answers.",
      .details = "kv.wide_layers, kv.wide_sinks and kv.wide_format apply to every format; bytes "
                 "are those of a token of a whole window.",
      .groups = { &kv_quality, &json, &model } },
    { .name = "eval states",
      .usage = "--text FILE --set model.arch=NAME [options]",
      .run = weir_run_eval_state_quality,
      .summary = "Measures how storing states of layers with fixed-size memory in fewer bits "
                 "changes the tokens after them.",
      .details = "The states are computed in f32; keys and values are rounded once, as for "
                 "storage, then the text continues.",
      .groups = { &state_quality, &json, &model } },
};

const weir_command *weir_commands(size_t *n)
{
    *n = COUNT(commands);
    return commands;
}
