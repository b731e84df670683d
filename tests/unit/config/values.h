/* A configuration and its text. */
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/config/config.h"
#include "engine/config/keys.h"

struct Config {
    std::unique_ptr<weir_config> value = std::make_unique<weir_config>();
    weir_error error = {};
    Config() { weir_config_default(value.get()); }
    weir_config *operator->() { return value.get(); }
    weir_status parse(const std::string &text)
    {
        return weir_config_parse(value.get(), text.data(), text.size(), "c.toml", &error);
    }
    weir_status set(const std::string &text)
    {
        return weir_config_assign(value.get(), text.c_str(), &error);
    }
};

inline std::string printed(const weir_config &config)
{
    weir_buffer text = {};
    EXPECT_EQ(weir_config_print(&config, &text), WEIR_OK);
    const std::string out(text.data, text.size);
    weir_buffer_free(&text);
    return out;
}

inline bool holds(const char *text, const std::string &part)
{
    return std::string(text).find(part) != std::string::npos;
}
