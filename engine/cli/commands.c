/* engine/cli/commands.c - the table of commands. The work is in the run functions. */
#include "engine/cli/groups.h"

static const weir_command commands[] = {
    { .name = "serve",
      .usage = "[options]",
      .run = weir_run_serve,
      .summary = "Serves a model through the OpenAI API.",
      .details = "Listens on 127.0.0.1:8080 by default. Ctrl-C or SIGTERM ends it after the "
                 "running answers, a second one at once.",
      .groups = { &weir_group_serve, &weir_group_model, &weir_group_sampling,
                  &weir_group_policy } },
    { .name = "plan",
      .usage = "[options]",
      .run = weir_run_plan,
      .summary = "Prints how memory.host will be used; exit code 3 if the plan does not fit.",
      .details = "The same plan as `serve --plan`: every account, the KV pages that are "
                 "left, and the window of a sequence. With --report, tables of what the "
                 "model takes on other devices.",
      .groups = { &weir_group_json, &weir_group_report, &weir_group_planned_experts,
                  &weir_group_batch, &weir_group_planned, &weir_group_policy } },
    { .name = "generate",
      .usage = "TEXT | --prompt TEXT | --file FILE | --tokens LIST | --messages FILE [options]",
      .words = { "prompt" },
      .run = weir_run_generate,
      .summary = "Continues a text or answers a conversation, once.",
      .details = "Without a text it reads standard input, without the last newline: `echo "
                 "hi | weir generate`.",
      .groups = { &weir_group_text, &weir_group_generate, &weir_group_sampling, &weir_group_model,
                  &weir_group_policy } },
    { .name = "chat",
      .usage = "[options]",
      .run = weir_run_chat,
      .summary = "Talks to a model in the terminal.",
      .details = "Ctrl-C stops the answer, Ctrl-D ends the conversation. On a terminal, lines are "
                 "edited as in a shell, and kept in $XDG_STATE_HOME/weir/chat_history, by default "
                 "~/.local/state/weir/chat_history, unless they begin with a space. /help lists "
                 "commands such as /undo and /save. Of a pipe every line is a message.",
      .groups = { &weir_group_chat, &weir_group_sampling, &weir_group_model, &weir_group_policy } },
    { .name = "run",
      .usage = "MODEL [TEXT] [options]",
      .words = { "model", "prompt" },
      .run = weir_run_run,
      .summary = "Answers a text with a model, or talks to it; downloads the model if need be.",
      .details =
          "MODEL is a file, a folder or a name of `weir get`: OWNER/NAME:QUANT. On a terminal "
          "it asks before it downloads, elsewhere only --yes allows that. The text is a "
          "message if the model can chat, else it is continued. Without a text: standard "
          "input, or on a terminal a chat as `weir chat` has it.",
      .groups = { &weir_group_run, &weir_group_sampling, &weir_group_run_model,
                  &weir_group_policy } },
    { .name = "get",
      .usage = "OWNER/NAME[:QUANT] [options]",
      .words = { "name" },
      .run = weir_run_get,
      .summary = "Downloads a model from a hub, by default huggingface.co, and prints its path.",
      .details = "Its name, as given here, then stands for its path: `weir chat --model "
                 "OWNER/NAME:QUANT`. QUANT is a quantisation, such as Q8_0. Without one: Q4_K_M, "
                 "Q8_0, the first GGUF file, or the safetensors files of a repository that has no "
                 "GGUF file. A download that was interrupted goes on where it ended; sizes and "
                 "SHA-256 sums are checked. Files go to $XDG_DATA_HOME/weir/models, by default "
                 "~/.local/share/weir/models. A token in HF_TOKEN is sent to the hub itself only.",
      .groups = { &weir_group_get } },
    { .name = "models",
      .usage = "[options]",
      .run = weir_run_models,
      .summary = "Lists the models of `weir get`: name, quantisation, size, date, state, path.",
      .details = "`weir models rm NAME` removes one.",
      .groups = { &weir_group_json } },
    { .name = "models rm",
      .usage = "OWNER/NAME[:QUANT]",
      .words = { "name" },
      .run = weir_run_models_rm,
      .summary = "Removes a model of `weir get`, and prints the files that it removes.",
      .details = "Without a quantisation: all models of this repository. Files that `weir get` "
                 "did not make stay.",
      .groups = { &weir_group_models_rm } },
    { .name = "session list",
      .usage = "--dir DIR [options]",
      .run = weir_run_session_list,
      .summary = "Lists the saved sessions of a folder: name, tokens, bytes, and the "
                 "problem of damaged ones.",
      .groups = { &weir_group_sessions, &weir_group_json } },
    { .name = "session save",
      .usage = "--dir DIR --name NAME --file FILE | --prompt TEXT | --messages FILE",
      .run = weir_run_session_save,
      .summary = "Computes a text and saves it, so that prompts can continue it.",
      .groups = { &weir_group_sessions, &weir_group_session, &weir_group_text, &weir_group_model,
                  &weir_group_policy } },
    { .name = "session restore",
      .usage = "--dir DIR --name NAME [options]",
      .run = weir_run_session_restore,
      .summary = "Restores a session and prints how long it took: checks that it is "
                 "complete and fits the model.",
      .groups = { &weir_group_sessions, &weir_group_session, &weir_group_model,
                  &weir_group_policy } },
    { .name = "session delete",
      .usage = "--dir DIR --name NAME",
      .run = weir_run_session_delete,
      .summary = "Deletes a saved session.",
      .groups = { &weir_group_sessions, &weir_group_session } },
    { .name = "db create",
      .usage = "--dir DIR [options]",
      .run = weir_run_db_create,
      .summary = "Creates an empty database of a model's states: documents that it has "
                 "computed, to answer questions from.",
      .groups = { &weir_group_db_create, &weir_group_model } },
    { .name = "db ingest",
      .usage = "--dir DIR --label TEXT --file FILE | --prompt TEXT | --documents FILE",
      .run = weir_run_db_ingest,
      .summary = "Computes documents and stores their states in a database.",
      .details = "A conversation (--messages) is stored without the beginning of an answer, "
                 "so that a question can follow. A document that already has a state is "
                 "skipped, so the same command continues after it was interrupted.",
      .groups = { &weir_group_db_ingest, &weir_group_text, &weir_group_model } },
    { .name = "db list",
      .usage = "--dir DIR [options]",
      .run = weir_run_db_list,
      .summary = "Lists the states of a database, newest first.",
      .groups = { &weir_group_db_list } },
    { .name = "db query",
      .usage = "--dir DIR --question TEXT [options]",
      .run = weir_run_db_query,
      .summary = "Answers a question from the nearest state, without computing the document "
                 "again.",
      .groups = { &weir_group_db_query, &weir_group_sampling, &weir_group_model } },
    { .name = "db merge",
      .usage = "--dir DIR --earlier NAME --later NAME --label TEXT",
      .run = weir_run_db_merge,
      .summary = "Merges two states into one, for models whose layers are all CoDA.",
      .details = "It continues the later one and has the contents of both banks, as far as "
                 "they fit. There is no guarantee that it knows what both knew: measure it.",
      .groups = { &weir_group_db_merge, &weir_group_model } },
    { .name = "db delete",
      .usage = "--dir DIR --name NAME",
      .run = weir_run_db_delete,
      .summary = "Deletes a state.",
      .groups = { &weir_group_db_delete } },
    { .name = "logits",
      .usage = "--tokens LIST --out FILE [options]",
      .run = weir_run_logits,
      .summary = "Writes the logits and hidden states of given tokens to a safetensors file.",
      .details = "Tensors: logits f32 [tokens, vocabulary], and hidden.I f32 [tokens, width] after "
                 "each layer I.",
      .groups = { &weir_group_logits, &weir_group_model } },
    { .name = "tokenize",
      .usage = "[options] < LINES",
      .run = weir_run_tokenize,
      .summary = "Reads lines of text, writes {\"ids\": [...], \"text\": decoded} for each.",
      .groups = { &weir_group_model } },
    { .name = "render",
      .usage = "--messages FILE [options]",
      .run = weir_run_render,
      .summary = "Prints a conversation as rendered by the model's chat template.",
      .groups = { &weir_group_render, &weir_group_model } },
    { .name = "bench",
      .usage = "[options]",
      .run = weir_run_bench,
      .summary = "Measures prefill and decode speed, and the machine's read bandwidth in "
                 "the same run.",
      .details = "With memory.disk, also the bytes that each token reads from disk, and the "
                 "speed of the disk.",
      .groups = { &weir_group_bench, &weir_group_model, &weir_group_policy } },
    { .name = "load",
      .usage = "URL [options]",
      .words = { "url" },
      .run = weir_run_load,
      .summary = "Measures any OpenAI server under load: latencies, throughput, failures.",
      .details = "With --rate an open loop: requests are sent when they are due, as a Poisson "
                 "process, however slow the server is. Otherwise a closed loop of --concurrency "
                 "clients. Latencies count from when a request was due. docs/benchmarks.md says "
                 "how each figure is defined. The key may also be in WEIR_API_KEY.",
      .groups = { &weir_group_load } },
    { .name = "experts",
      .usage = "--text FILE [options]",
      .run = weir_run_experts,
      .summary = "Prints how often the experts that a text needs are in memory, for each "
                 "memory.experts.",
      .details = "Reads the text token by token, as answers are decoded, and counts every expert "
                 "that a layer chooses. One run gives all budgets: a cache that evicts what was "
                 "used least recently holds what a smaller one holds.",
      .groups = { &weir_group_experts, &weir_group_json, &weir_group_model } },
    { .name = "experts trace",
      .usage = "--text FILE --out FILE [options]",
      .run = weir_run_experts_trace,
      .summary = "Writes which experts each token of a text used in each layer, for `weir plan "
                 "--experts-trace`.",
      .details = "Prints the same table as `weir experts`. With memory.experts, also what was in "
                 "memory in this run.",
      .groups = { &weir_group_experts, &weir_group_experts_trace, &weir_group_json,
                  &weir_group_model } },
    { .name = "convert",
      .usage = "--out FILE [--type NAME] [options]",
      .run = weir_run_convert,
      .summary = "Writes a checkpoint as a GGUF file, quantised if asked.",
      .details =
          "Reads safetensors, or a GGUF file whose types change. The file is complete when it "
          "appears under its name; Ctrl-C leaves nothing. docs/guides/converting.md has the "
          "types, and what they cost.",
      .groups = { &weir_group_convert, &weir_group_convert_model } },
    { .name = "imatrix",
      .usage = "--text FILE --out FILE [options]",
      .run = weir_run_imatrix,
      .summary = "Measures how large the inputs of each matrix are over a text, for `weir convert "
                 "--imatrix`.",
      .details = "The file is that of llama-imatrix: either program reads it. Some hundred windows "
                 "are enough. Experts that the text never chooses are quantised without it.",
      .groups = { &weir_group_imatrix, &weir_group_model } },
    { .name = "verify",
      .usage = "--against llama.cpp | transformers --text FILE [options]",
      .run = weir_run_verify,
      .summary =
          "Compares logits and greedy tokens with those of another program on the same model.",
      .details =
          "Exit code 1 if the mean KL divergence exceeds --max-kl. Compare exact arithmetic: "
          "--kv-format f32 --activations f32. llama.cpp computes 16-bit weights with "
          "inputs of 16 bits, so that a file of --type f32 shows the smallest differences.",
      .groups = { &weir_group_verify, &weir_group_json, &weir_group_model } },
    { .name = "calibrate",
      .usage = "--text FILE --out FILE [options]",
      .run = weir_run_calibrate,
      .summary = "Measures the model's queries over a text, for KV policies that score keys "
                 "with them (triattention).",
      .details = "A few tens of thousands of tokens are enough. The file names its model; "
                 "other models refuse it.",
      .groups = { &weir_group_calibrate, &weir_group_model } },
    { .name = "eval retrieval",
      .usage = "--items FILE [options]",
      .run = weir_run_eval_retrieval,
      .summary = "Counts exact answers to questions about long contexts.",
      .groups = { &weir_group_retrieval, &weir_group_json, &weir_group_policy,
                  &weir_group_model } },
    { .name = "eval generate",
      .usage = "--task NAME --length LIST --out FILE [options]",
      .run = weir_run_eval_generate,
      .summary = "Writes questions about long contexts for `eval retrieval`: the tasks of RULER, "
                 "needles by depth, depth-first searches.",
      .details = "Lengths are counted with the model's tokenizer and chat template. The "
                 "same seed gives the same samples. With `all`, tasks that cannot be made "
                 "this short are skipped, with a message.",
      .groups = { &weir_group_items, &weir_group_tokens_model } },
    { .name = "eval constructed",
      .usage = "--out DIR [options]",
      .run = weir_run_eval_constructed,
      .summary = "Writes a model that needs no training: after `key value .. key` it says "
                 "`value` exactly if that KV row is still there.",
      .details = "Token 0 means \"none\". It has no tokenizer: prompts are ids (`weir "
                 "generate --tokens`).",
      .groups = { &weir_group_constructed } },
    { .name = "eval matrix",
      .usage = "--out DIR --items FILE | --text FILE [options]",
      .run = weir_run_eval_matrix,
      .summary =
          "Accuracy and perplexity by KV policy, budget and format: JSON lines, CSV and plots.",
      .details = "After an interruption, the same command continues.",
      .groups = { &weir_group_matrix, &weir_group_model } },
    { .name = "eval policies",
      .usage = "[options]",
      .run = weir_run_eval_policies,
      .summary = "Lists the KV policies: what each keeps, and its options with their defaults.",
      .groups = { NULL } },
    { .name = "eval structured",
      .usage = "--cases FILE [options]",
      .run = weir_run_eval_structured,
      .summary = "Compiles schemas, regular expressions, choices and grammars, and says where "
                 "texts become impossible under them.",
      .details = "Prints one line of JSON for each case, with --json, else one line of text.",
      .groups = { &weir_group_structured, &weir_group_json } },
    { .name = "eval toolcalls",
      .usage = "--cases FILE [options]",
      .run = weir_run_eval_toolcalls,
      .summary = "Shows what the server makes of given answers: reasoning, content, tool calls.",
      .details = "With --json also the deltas of a stream in which every byte comes alone.",
      .groups = { &weir_group_toolcalls, &weir_group_json } },
    { .name = "eval perplexity",
      .usage = "--text FILE [options]",
      .run = weir_run_eval_perplexity,
      .summary = "Scores a text.",
      .groups = { &weir_group_perplexity, &weir_group_json, &weir_group_policy,
                  &weir_group_model } },
    { .name = "eval kv-quality",
      .usage = "--text FILE [options]",
      .run = weir_run_eval_kv_quality,
      .summary = "Measures what each KV format costs against f32: perplexity, divergence of the "
                 "next token, bytes, exact answers.",
      .details = "kv.wide_layers, kv.wide_sinks and kv.wide_format apply to every format; bytes "
                 "are those of a token of a whole window.",
      .groups = { &weir_group_kv_quality, &weir_group_json, &weir_group_model } },
    { .name = "eval states",
      .usage = "--text FILE --set model.arch=NAME [options]",
      .run = weir_run_eval_state_quality,
      .summary = "Measures how storing states of layers with fixed-size memory in fewer "
                 "bits changes the tokens after them.",
      .details = "The states are computed in f32; keys and values are rounded once, as for "
                 "storage, then the text continues.",
      .groups = { &weir_group_state_quality, &weir_group_json, &weir_group_model } },
};

const weir_command *weir_commands(size_t *n)
{
    *n = COUNT(commands);
    return commands;
}
