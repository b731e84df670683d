/* Command lines, parsed or run with functions in the place of the commands. */
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/cli/command.h"

inline const char *ran = nullptr; /* name of the command that ran last */
inline std::vector<std::string> model_paths;
inline int code_of_run = 0;

using Words = std::vector<const char *>;

inline const weir_command &command_named(const std::string &name)
{
    size_t n = 0;
    const weir_command *const commands = weir_commands(&n);
    for (size_t i = 0; i < n; i++)
        if (name == commands[i].name) return commands[i];
    ADD_FAILURE() << name;
    return commands[0];
}

struct Line {
    std::unique_ptr<weir_arguments> arguments = std::make_unique<weir_arguments>();
    weir_error error = {};
    weir_status status;
    Line(const std::string &command, const Words &words)
    {
        const char *folders[] = { "configs" };
        const weir_config_search search = { nullptr, folders, 1 };
        status = weir_arguments_parse(
            arguments.get(), &command_named(command), &search, int(words.size()), words.data(),
            &error
        );
    }
    const weir_config &config() const { return arguments->config; }
    const char *text(const char *name) const { return weir_argument(arguments.get(), name); }
};

struct Outcome {
    int code;
    std::string out, err;
};

inline Outcome run_main(Words words, const char *fixed = nullptr)
{
    weir_program program = {};
    program.name = fixed != nullptr ? fixed : "weir";
    program.version = "1.2.3";
    program.fixed = fixed;
    program.commands = weir_commands(&program.n_commands);
    words.insert(words.begin(), program.name);
    ran = nullptr;
    Outcome outcome;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    outcome.code = weir_main(&program, int(words.size()), words.data());
    outcome.out = testing::internal::GetCapturedStdout();
    outcome.err = testing::internal::GetCapturedStderr();
    return outcome;
}

inline bool holds(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}
