// Bodies of llama-server's completions, one row each: what becomes of them, what is refused.
#include "engine/serve/llama_request.h"
#include "tests/unit/serve/request.h"

namespace request {
namespace {

weir_status read_llama(weir_llama_request *out, const std::string &fields, weir_api_error *error)
{
    const weir_request_limits l = limits();
    json_t *const root = parse("{\"prompt\":\"a\"" + fields + "}");
    const weir_status status = weir_llama_request_read(
        out, root, json_object_get(root, "prompt"), WEIR_BODY_LLAMA, &l, error
    );
    json_decref(root);
    return status;
}

const Row llama_rows[] = {
    { R"(,"n_predict":-1)", 200, nullptr },
    { R"(,"n_predict":"8")", 400, "n_predict" },
    { R"(,"n_predict":-3)", 400, "n_predict" },
    { R"(,"temperature":-1)", 400, "temperature" },
    { R"(,"repeat_penalty":0)", 400, "repeat_penalty" },
    { R"(,"repeat_penalty":1.1)", 200, nullptr },
    { R"(,"repeat_penalty":1.1,"repeat_last_n":64)", 400, "repeat_last_n" },
    { R"(,"repeat_penalty":1.0,"repeat_last_n":64)", 200, nullptr },
    { R"(,"presence_penalty":1,"repeat_last_n":-1)", 200, nullptr },
    { R"(,"n_cmpl":5)", 400, "n_cmpl" },
    { R"(,"n_cmpl":4)", 200, nullptr },
    { R"(,"id_slot":4)", 400, "id_slot" },
    { R"(,"id_slot":-2)", 400, "id_slot" },
    { R"(,"id_slot":3)", 200, nullptr },
    { R"(,"id_slot":3,"cache_salt":"s")", 400, "id_slot" },
    { R"(,"id_slot":-1,"cache_salt":"s")", 200, nullptr },
    { R"(,"n_probs":20)", 200, nullptr },
    { R"(,"n_probs":21)", 400, "n_probs" },
    { R"(,"n_keep":-1,"n_discard":5)", 200, nullptr },
    { R"(,"n_discard":-5)", 400, "n_discard" },
    { R"(,"mirostat":0,"mirostat_tau":5,"mirostat_eta":0.1)", 200, nullptr },
    { R"(,"mirostat":2)", 400, "mirostat" },
    { R"(,"typical_p":1,"dry_multiplier":0,"dry_base":1.75,"xtc_probability":0)", 200, nullptr },
    { R"(,"typical_p":0.9)", 400, "typical_p" },
    { R"(,"dry_multiplier":0.8)", 400, "dry_multiplier" },
    { R"(,"dry_sequence_breakers":["\n"])", 200, nullptr },
    { R"(,"dry_sequence_breakers":5)", 400, "dry_sequence_breakers" },
    { R"(,"xtc_probability":"a")", 400, "xtc_probability" },
    { R"(,"lora":[],"image_data":[])", 200, nullptr },
    { R"(,"lora":[{"id":0}])", 400, "lora" },
    { R"(,"samplers":["top_k"])", 400, "samplers" },
    { R"(,"post_sampling_probs":true)", 400, "post_sampling_probs" },
    { R"(,"post_sampling_probs":false)", 200, nullptr },
    { R"(,"logit_bias":[[5,1.5],[6,false]])", 200, nullptr },
    { R"(,"logit_bias":[[500,1]])", 400, "logit_bias" },
    { R"(,"logit_bias":[["a",1]])", 400, "logit_bias" },
    { R"(,"logit_bias":[[5]])", 400, "logit_bias" },
    { R"(,"grammar":"")", 200, nullptr },
    { R"(,"stop":5)", 400, "stop" },
    { R"(,"seed":1.5)", 400, "seed" },
    { R"(,"some_future_key":1)", 200, nullptr },
    { R"(,"kv_polcy":"h2o")", 400, "kv_polcy" },
};

TEST(Llama, Fields)
{
    for (const Row &row : llama_rows) {
        weir_llama_request llama = {};
        weir_api_error error = {};
        const weir_status status = read_llama(&llama, row.fields, &error);
        expect(row, status, error);
        if (status == WEIR_OK)
            EXPECT_EQ(has_unknown(row), llama.request.unknown.count > 0) << row.fields;
        weir_openai_request_free(&llama.request);
    }
}

TEST(Llama, BecomesACompletion)
{
    weir_llama_request llama = {};
    weir_api_error error = {};
    ASSERT_EQ(
        WEIR_OK,
        read_llama(
            &llama,
            R"(,"n_predict":0,"repeat_penalty":1.5,"n_cmpl":2,"n_probs":7,"cache_prompt":false,)"
            R"("logit_bias":[[5,1.5],[6,false]],"seed":7,"stop":["x"],"stream":true)",
            &error
        )
    ) << error.message;
    const weir_openai_request *const r = &llama.request;
    EXPECT_FALSE(r->chat);
    EXPECT_EQ(0, r->max_tokens);
    EXPECT_EQ(1.5f, r->sampling.repetition_penalty);
    EXPECT_EQ(2, r->n);
    EXPECT_TRUE(r->logprobs);
    EXPECT_EQ(7, r->n_top_logprobs);
    EXPECT_FALSE(r->cache_prompt);
    EXPECT_EQ(7u, r->sampling.seed);
    ASSERT_EQ(2u, r->sampling.n_bias);
    EXPECT_EQ(-100.0f, r->sampling.bias[0].bias + r->sampling.bias[1].bias - 1.5f);
    EXPECT_TRUE(r->stream);
    EXPECT_FALSE(r->keep_ids);
    weir_openai_request_free(&llama.request);
    ASSERT_EQ(WEIR_OK, read_llama(&llama, R"(,"id_slot":0,"seed":4294967295)", &error));
    EXPECT_TRUE(llama.request.keep_ids);
    EXPECT_EQ(-1, llama.request.max_tokens) << "to the end of the window";
    EXPECT_NE(4294967295u, llama.request.sampling.seed) << "a new one";
    weir_openai_request_free(&llama.request);
    EXPECT_EQ(
        WEIR_EINVAL, read_llama(&llama, R"(,"grammar":"root ::= \"a\"","json_schema":{})", &error)
    );
    EXPECT_EQ(400, error.status);
}

} // namespace
} // namespace request
