// Bodies about embeddings: how many texts they hold.
#include "engine/serve/embed_request.h"
#include "tests/unit/serve/request.h"

namespace request {
namespace {

TEST(Embed, TheMostTextsAreThoseOfOpenAisApi)
{
    const weir_request_limits l = limits();
    std::string texts = "\"a\"";
    for (int i = 1; i < WEIR_EMBEDDED_PROMPTS; i++) texts += ",\"a\"";
    for (const bool too_many : { false, true }) {
        json_t *const root = parse("{\"input\":[" + texts + (too_many ? ",\"a\"]}" : "]}"));
        weir_embed_request embed = {};
        weir_api_error error = {};
        const weir_status status =
            weir_embed_request_read(&embed, root, WEIR_BODY_EMBEDDINGS, 8, &l, &error);
        EXPECT_EQ(too_many, status != WEIR_OK);
        EXPECT_STREQ(too_many ? "input" : "", error.param);
        weir_openai_request_free(&embed.request);
        json_decref(root);
    }
}

} // namespace
} // namespace request
