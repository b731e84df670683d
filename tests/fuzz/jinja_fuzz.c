/* tests/fuzz/jinja_fuzz.c - any bytes as a chat template, rendered with fixed messages and tools.
 * The first byte chooses the options. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "[{\"role\": \"system\", \"content\": \" Be brief.\\n\"}, {\"role\": \"user\", \"content\": "
    "\"Gr\\u00f6\\u00dfe <|im_end|> "
    "\\u4f60\\n\"},"
    " {\"role\": \"assistant\", \"content\": \"<think>\\na\\n</think>\\n\\nb\", \"tool_calls\": "
    "[{\"id\": \"c1\", \"type\": \"function\","
    " \"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1.5, \"y\": [true, null, \"z'\\\"\"], "
    "\"z\": -7}}}]},"
    " {\"role\": \"tool\", \"tool_call_id\": \"c1\", \"content\": \"{\\\"a\\\": [1, 2]}\"},"
    " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x \"}]}]";
static const char tool_list[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
    "{\"x\": {\"type\": \"number\"}}}}}]";

static void require(bool condition)
{
    if (!condition) abort();
}

/* Success, or a failure that says something. */
static void check_status(weir_status status, const weir_error *error)
{
    require(
        status == WEIR_OK || (error->code == status && error->text[0] != '\0' &&
                              strlen(error->text) < sizeof error->text)
    );
}

static void check_output(const weir_chat_output *output)
{
    size_t end = 0;
    require(output->text.size == 0 || output->text.data[output->text.size] == '\0');
    for (size_t i = 0; i < output->n_user; i++) {
        require(
            output->user[i].begin < output->user[i].end && output->user[i].end <= output->text.size
        );
        require(i == 0 || output->user[i].begin > end);
        end = output->user[i].end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    weir_error error = { 0 };
    weir_chat_template *chat = NULL;
    if (size == 0) return 0;
    weir_status status = weir_chat_template_open(&chat, (const char *)data + 1, size - 1, &error);
    check_status(status, &error);
    if (status != WEIR_OK) return 0;
    json_t *messages = json_loads(conversation, 0, NULL), *tools = json_loads(tool_list, 0, NULL);
    weir_chat_output output = { 0 };
    weir_chat_input input = {
        .messages = messages,
        .tools = data[0] & 1 ? tools : NULL,
        .bos_token = data[0] & 2 ? "<s>" : NULL,
        .eos_token = "</s>",
        .add_generation_prompt = (data[0] & 12) == 4,
        .continue_final_message = (data[0] & 8) != 0,
        .now_unix_seconds = 1795185000,
    };
    status = weir_chat_render(chat, &output, &input, &error);
    check_status(status, &error);
    if (status == WEIR_OK) check_output(&output);
    weir_chat_output_free(&output);
    weir_chat_template_close(chat);
    json_decref(messages);
    json_decref(tools);
    return 0;
}
