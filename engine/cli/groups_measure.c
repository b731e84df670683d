/* engine/cli/groups_measure.c - the option groups of reports, benchmarks and evaluation. */
#include "engine/cli/groups.h"

static const weir_option report_options[] = {
    LIST(
        "context", 0, 1 << 30,
        "Window of a sequence in tokens; 0: what the model was trained for. With --report, the "
        "contexts of the tables: 2048,32768. "
        "[model.context]"
    ),
    FLAG(
        "report", "Print the memory and time that a model takes by context, batch, KV "
                  "format, GPU and number of devices, whether or not it fits this machine."
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
        "Type of the weights: bf16, q8_0, q4_k ... Default: bf16, or the type in "
        "the model file."
    ),
    TEXT(
        "assumptions", "NAME",
        "engine, or seed: the figures of a widely copied analysis, with its errors; without "
        "--shape, of llama-2-7b. Default: engine."
    ),
    TEXT("svg", "FILE", "Also write a plot of KV over context."),
};
GROUP(report, "Report");

static const weir_option planned_experts_options[] = {
    TEXT(
        "experts-trace", "FILE",
        "Also print how often experts are in memory, for each memory.experts: a file of `weir "
        "experts trace`, of this model; - is stdin."
    ),
};
GROUP(planned_experts, "Experts");

static const weir_option logits_options[] = {
    TEXT("tokens", "LIST", "Token ids: 1,2,3.", .required = true),
    TEXT("out", "FILE", "safetensors file to write.", .required = true),
    INT("chunk", "N", 1, INT32_MAX, "Tokens per step. Default: batch.chunk."),
    INT("decode-from", "K", 0, INT32_MAX, "Compute positions from K on one token at a time."),
};
GROUP(logits, "Input and output");

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
        "synthetic-kv", "Fill the KV rows of each depth with noise instead of computing a prompt "
                        "that long, and measure no prefill: for depths that would take too long to "
                        "compute."
    ),
    TEXT(
        "policies", "LIST",
        "Measure decoding with these KV policies, NAME or NAME:OPTIONS separated "
        "by ;, compared with a plain cache of --budget rows, in turns of --gen "
        "tokens (default: 128). --depth is the length of the prompt, which is "
        "noise."
    ),
    LIST(
        "streams", 1, 1024,
        "Measure this many requests at a time instead, through the scheduler, one row of results "
        "each: 1,4,16,64. --prompt and --gen (default: 128) are the lengths of each request, "
        "--repeat (default: 3) the rounds."
    ),
    INT("pairs", "N", 1, 64, "Turns of each with --policies. Default: 7."),
    KEY("chunk", "N", "batch.chunk"),
    EXPLAIN_OPTION("each KV policy"),
    FLAG("json", "Print one JSON object instead of a table."),
};
GROUP(bench, "Measurement");

static const weir_option load_options[] = {
    TEXT("url", "URL", "Server: http://127.0.0.1:8080.", .required = true),
    TEXT("model", "NAME", "Model to ask for. Default: the server's first.", .letter = 'm'),
    TEXT("api-key", "KEY", "Bearer token. Other users can see it: prefer WEIR_API_KEY."),
    TEXT("endpoint", "NAME", "chat or completions. Default: chat."),
    TEXT(
        "rate", "R",
        "Conversations that arrive per second, at random times (open loop). Default: closed loop."
    ),
    INT("concurrency", "N", 1, 4096,
        "Closed loop: clients. Open loop: the most requests at a time; later ones wait, which "
        "counts. Default: 1, open loop 1024.",
        .letter = 'c'),
    INT("requests", "N", 1, 1 << 20, "Requests of the run. Default: 100, or those of --duration.",
        .letter = 'n'),
    TEXT("duration", "SECONDS", "No request that is due later is sent."),
    INT("seed", "N", 0, INT64_MAX, "Names the arrivals, lengths and texts. Default: 0."),
    TEXT(
        "prompt", "TOKENS",
        "Length of each prompt: N, LOW-HIGH, normal:MEAN,DEVIATION or exponential:MEAN. Default: "
        "512.",
        .letter = 'p'
    ),
    TEXT("answer", "TOKENS", "Length of each answer, in the same forms. Default: 128."),
    FLAG("stop-at-eos", "Let answers end earlier; else ignore_eos is sent."),
    TEXT("temperature", "T", "Of the sampling. Default: 0."),
    INT("prefix", "N", 0, 1 << 20,
        "Tokens before each prompt that all conversations of a group share. Default: 0."),
    INT("groups", "N", 1, 1 << 20, "Number of these texts. Default: 1."),
    INT("turns", "N", 1, 1 << 16,
        "Requests of a conversation; each has all before it in its prompt. Default: 1."),
    TEXT(
        "think", "SECONDS", "Mean time between an answer and the next turn, at random. Default: 0."
    ),
    INT("timeout", "SECONDS", 1, 86400, "Of one request. Default: 600."),
    TEXT(
        "goodput", "LIST",
        "Count requests within these limits in ms: ttft:200,tpot:50,e2e:5000, any of them."
    ),
    FLAG("json", "Print one JSON object instead of text."),
    TEXT("out", "FILE", "Also write the JSON, with an object for each request."),
    TEXT("plot", "FILE", "Also write an SVG of the latencies."),
    TEXT("plot-by", "HOW", "cdf: their distribution; time: over the run. Default: cdf."),
};
GROUP(load, "Load");

static const weir_option experts_options[] = {
    TEXT("text", "FILE", "Text like that of later use, UTF-8; - is stdin.", .required = true),
    INT("tokens", "N", 1, 1 << 24, "Tokens of it to read. Default: 1024."),
};
GROUP(experts, "Input");

static const weir_option experts_trace_options[] = {
    TEXT("out", "FILE", "File to write.", .required = true),
};
GROUP(experts_trace, "Output file");

static const weir_option calibrate_options[] = {
    TEXT("text", "FILE", "Text like that of later use, UTF-8; - is stdin.", .required = true),
    TEXT("out", "FILE", "Output file for the statistics.", .required = true),
    WINDOW_OPTION("1024"),
};
GROUP(calibrate, "Input and output");

static const weir_option retrieval_options[] = {
    TEXT("items", "FILE", "Questions, one JSON object per line; - is stdin.", .required = true),
    INT("limit", "N", 1, INT32_MAX, "Maximum number of items. Default: all."),
    TEXT(
        "svg", "FILE",
        "Also write a plot: a heat map of length and depth if all items have "
        "depths, else accuracy over length."
    ),
};
GROUP(retrieval, "Input and output");

static const weir_option structured_options[] = {
    TEXT(
        "cases", "FILE", "Cases, one JSON object per line, as in tests/structured; - is stdin.",
        .required = true
    ),
    TEXT("filter", "TEXT", "Only the cases whose line holds TEXT."),
};
GROUP(structured, "Input and output");

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
        "JSON in the format of SQuAD for qa_1, of HotpotQA (distractor setting) "
        "for qa_2."
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

static const weir_option toolcalls_options[] = {
    TEXT(
        "cases", "FILE",
        "Answers, one JSON object per line: id, family, template, prompt_end, text, stop; - is "
        "stdin.",
        .required = true
    ),
    TEXT("tools", "FILE", "The tools that were offered, as in a request. Default: none."),
    TEXT(
        "templates", "DIR",
        "Chat templates, by which formats are detected. Default: by the case's family."
    ),
};
GROUP(toolcalls, "Input");

static const weir_option tokens_model_options[] = { MODEL_FILE_OPTIONS,
                                                    KEY("log-level", "LEVEL", "log.level") };
GROUP(tokens_model, "Model");

static const weir_option matrix_options[] = {
    TEXT("out", "DIR", "Folder of the results; created if missing.", .required = true),
    TEXT("items", "FILE", "Questions, as for `weir eval retrieval`."),
    TEXT("text", "FILE", "Text to score, as for `weir eval perplexity`."),
    TEXT(
        "policies", "LIST",
        "NAME or NAME:OPTIONS, separated by ;. Default: thirteen methods, with "
        "windows that fit small budgets; and triattention with --calibration."
    ),
    KEY("calibration", "FILE", "kv.policy.calibration"),
    TEXT("budgets", "LIST", "Rows, or percent of each text. Default: 50%,25%,12%."),
    TEXT("formats", "LIST", "KV formats. Default: kv.format."),
    INT("limit", "N", 1, 1 << 24, "Maximum number of items. Default: all."),
    INT("window", "N", 2, 1 << 24, "Tokens per window of the text. Default: 512."),
};
GROUP(matrix, "Measurement");

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
        "Files of questions for eval retrieval, a.jsonl,b.jsonl: correct answers "
        "are counted for each format."
    ),
    INT("item-limit", "N", 1, INT32_MAX, "Maximum number of questions per file. Default: all."),
};
GROUP(kv_quality, "Input");

static const weir_option state_quality_options[] = {
    SCORED_TEXT_OPTION,
    WINDOW_OPTION("512"),
    INT("before", "N", 1, 1 << 24,
        "Tokens of each window that are computed before its state is saved, "
        "rounded down to whole blocks of prompts. Default: half of them."),
    INT("limit", "N", 1, INT32_MAX, "Maximum number of windows. Default: all."),
};
GROUP(state_quality, "Input");
