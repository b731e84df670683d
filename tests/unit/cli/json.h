/* What a command printed with --json. */
#pragma once
#include <gtest/gtest.h>
#include <jansson.h>

#include <string>

#include "engine/formats/json.h"

namespace program {

struct Json {
    json_t *root = nullptr;
    explicit Json(const std::string &text)
    {
        weir_error error = {};
        EXPECT_EQ(weir_json_parse(&root, text.data(), text.size(), "json", 16, &error), WEIR_OK)
            << error.text;
    }
    Json(const Json &) = delete;
    Json &operator=(const Json &) = delete;
    ~Json() { json_decref(root); }
    double number(const char *key) const { return json_number_value(json_object_get(root, key)); }
    json_t *at(const char *key) const { return json_object_get(root, key); }
};

} // namespace program
