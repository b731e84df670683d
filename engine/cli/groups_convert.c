/* engine/cli/groups_convert.c - the option groups of commands that write model files. */
#include "engine/cli/groups.h"

static const weir_option convert_options[] = {
    TEXT("out", "FILE", "GGUF file to write.", .required = true),
    TEXT(
        "type", "NAME",
        "f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q2_k_s, q3_k_s, q3_k_m, q3_k_l, "
        "q4_k_s, q4_k_m, q5_k_s, q5_k_m, q6_k, iq4_nl, iq4_xs, iq3_m, iq3_s, iq3_xs, iq3_xxs, "
        "iq2_m, iq2_s, iq2_xs, iq2_xxs, iq1_m, iq1_s, tq1_0, tq2_0, mxfp4, nvfp4, q1_0 "
        "or q2_0. Default: f16."
    ),
    FLAG("pure", "Give all matrices this type; else those that matter most have more bits."),
    TEXT(
        "imatrix", "FILE",
        "Importance matrix of the model (weir imatrix, llama-imatrix): errors of columns with "
        "larger inputs count more. Types iq1, iq2 and iq3_xxs need one."
    ),
    FLAG("no-tokenizer", "Leave the tokenizer out: the file takes token ids only."),
};
GROUP(convert, "Conversion");

static const weir_option convert_model_options[] = { MODEL_FILE_OPTIONS,
                                                     KEY("threads", "N", "kernels.threads"),
                                                     KEY("log-level", "LEVEL", "log.level") };
GROUP(convert_model, "Model");

static const weir_option imatrix_options[] = {
    TEXT("text", "FILE", "Text like that of later use, UTF-8; - is stdin.", .required = true),
    TEXT("out", "FILE", "GGUF file to write.", .required = true),
    WINDOW_OPTION("512"),
    INT("limit", "N", 1, INT32_MAX, "Maximum number of windows. Default: all."),
};
GROUP(imatrix, "Input and output");

static const weir_option verify_options[] = {
    TEXT(
        "against", "NAME", "llama.cpp (the package llama-cpp-python) or transformers (and torch)."
    ),
    TEXT("program", "FILE", "Another program, which speaks the protocol of verify_peer.py."),
    TEXT("python", "FILE", "Python that has the package. Default: python3."),
    TEXT("text", "FILE", "Text that prompts are cut from, UTF-8; - is stdin."),
    TEXT("tokens", "LIST", "Ids of one prompt instead: 1,2,3."),
    INT("prompts", "N", 1, 4096, "Prompts of the text. Default: 4."),
    INT("window", "N", 1, 1 << 16, "Tokens of each. Default: 64."),
    INT("gen", "N", 1, 4096, "Greedy tokens after each prompt. Default: 16."),
    TEXT("max-kl", "X", "Fail above this mean KL divergence, in nats. Default: 0.001."),
    FLAG("same-tokens", "Also fail if greedy tokens differ."),
};
GROUP(verify, "Comparison");
