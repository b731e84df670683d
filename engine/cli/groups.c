/* engine/cli/groups.c - the option groups of models, sampling, policies, servers, texts and
 * sessions. */
#include "engine/cli/groups.h"

static const weir_option model_options[] = { MODEL_FILE_OPTIONS,
                                             KEY("context", "N", "model.context"),
                                             MODEL_RUN_OPTIONS };
GROUP(model, "Model");

static const weir_option run_model_options[] = { KEY("arch-dir", "DIR", "model.arch_dir"),
                                                 KEY("context", "N", "model.context"),
                                                 MODEL_RUN_OPTIONS };
GROUP(run_model, "Model");

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
        "Continue the session of this name in sessions.dir, and save the sequence with "
        "its answer there."
    ),
    FLAG("json", "Print one JSON object with the text and its tokens."),
    EXPLAIN_OPTION("the configured KV policy"),
};
GROUP(generate, "Answer");

static const weir_option chat_options[] = {
    TEXT("system", "TEXT", "System message that opens the conversation."),
    TEXT(
        "messages", "FILE",
        "A conversation to go on with, as /save writes it: a JSON array of chat messages."
    ),
};
GROUP(chat, "Conversation");

static const weir_option run_options[] = {
    TEXT(
        "model", "MODEL", "What to run; --model may be left out.", .required = true, .letter = 'm'
    ),
    TEXT("prompt", "TEXT", "What to answer; --prompt may be left out.", .letter = 'p'),
    TEXT("system", "TEXT", "System message that opens the conversation."),
    { .name = "yes",
      .letter = 'y',
      .type = WEIR_OPTION_FLAG,
      .help = "Download the model without asking." },
};
GROUP(run, "Answer");

static const weir_option render_options[] = {
    TEXT(
        "messages", "FILE",
        "JSON array of chat messages, or an object with \"messages\", \"tools\" and template "
        "variables; - is stdin.",
        .required = true
    ),
};
GROUP(render, "Input");

static const weir_option sessions_options[] = {
    KEY("dir", "DIR", "sessions.dir"),
};
GROUP(sessions, "Sessions");

static const weir_option session_options[] = {
    TEXT("name", "NAME", "The session's name.", .required = true),
};
GROUP(session, "Session");

static const weir_option get_options[] = {
    TEXT("name", "OWNER/NAME[:QUANT]", "The model; --name may be left out.", .required = true),
    TEXT("revision", "NAME", "Branch, tag or commit. Default: main."),
    TEXT(
        "file", "NAME", "Get this file of the repository instead, with the rest of its split set."
    ),
    TEXT("endpoint", "URL", "The hub. Default: HF_ENDPOINT, else https://huggingface.co."),
};
GROUP(get, "Download");

static const weir_option models_rm_options[] = {
    TEXT("name", "OWNER/NAME[:QUANT]", "The model; --name may be left out.", .required = true),
};
GROUP(models_rm, "Model");
