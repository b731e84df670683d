/* tests/unit/eval/samples.h - generated samples as C++ values, with tokens counted by a rule
 * instead of a tokenizer. */
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tools/eval/generate.h"

namespace samples {

struct Sample {
    std::string context, question, prefix, line;
    std::vector<std::string> answers;
    int n_tokens, max_tokens, depth; /* n_tokens: of the prompt */
};

inline std::string text_of(const weir_buffer &buffer)
{
    return buffer.size > 0 ? std::string(buffer.data, buffer.size) : "";
}

/* A third of the bytes, and 20 for the chat. */
inline int tokens_of(const weir_eval_item &item)
{
    return 20 + static_cast<int>((item.context.size + item.question.size + item.prefix.size) / 3);
}

struct Outcome {
    weir_status status;
    std::string text; /* of the error */
    std::vector<Sample> samples;
};

inline Outcome generate(
    const char *name, int length, int n_samples, uint64_t seed = 42,
    const weir_eval_qa *qa = nullptr
)
{
    Outcome out = {};
    weir_error error = {};
    weir_eval_essay essay = {};
    const weir_eval_task *const task = weir_eval_task_find(name);
    if (task == nullptr) {
        ADD_FAILURE() << "no task " << name;
        return out;
    }
    EXPECT_EQ(weir_eval_essay_bundled(&essay, &error), WEIR_OK) << error.text;
    const weir_eval_counter counter = { [](void *, const weir_eval_item *item, int32_t *n,
                                           weir_error *) {
                                           *n = tokens_of(*item);
                                           return WEIR_OK;
                                       },
                                        nullptr };
    weir_eval_setting setting = {};
    setting.length = length;
    setting.n_samples = n_samples;
    setting.seed = seed;
    setting.essay = &essay;
    setting.qa = qa;
    setting.counter = &counter;
    setting.user = &out;
    setting.take = [](void *user, const weir_eval_item *item) {
        Sample sample = { text_of(item->context),
                          text_of(item->question),
                          text_of(item->prefix),
                          {},
                          {},
                          tokens_of(*item),
                          item->max_tokens,
                          item->depth };
        const char *at = item->answers.data;
        for (size_t i = 0; i < item->n_answers; i++, at += strlen(at) + 1)
            sample.answers.emplace_back(at);
        weir_buffer line = {};
        weir_error why = {};
        EXPECT_EQ(weir_eval_item_print(item, &line, &why), WEIR_OK) << why.text;
        sample.line = text_of(line);
        weir_buffer_free(&line);
        static_cast<Outcome *>(user)->samples.push_back(sample);
        return true;
    };
    bool stopped = false;
    out.status = weir_eval_generate(task, &setting, &stopped, &error);
    out.text = error.text;
    weir_eval_essay_close(&essay);
    return out;
}

/* How often `part` is in `text`, overlaps counted. */
inline size_t count(const std::string &text, const std::string &part)
{
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) n++;
    return n;
}

} // namespace samples
