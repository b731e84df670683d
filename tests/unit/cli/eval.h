/* weir eval on the demo model. */
#pragma once
#include <algorithm>
#include <sstream>

#include "tests/unit/cli/json.h"
#include "tests/unit/cli/program.h"

namespace eval_test {

using program::Json;
using program::Outcome;
using program::run;

/* weir eval NAME on the demo model. */
inline Outcome eval(std::vector<std::string> words)
{
    words.insert(words.begin(), "eval");
    words.insert(words.begin() + 2, { "--model", "models/weir-demo" });
    return run(words);
}

class Eval : public program::Folder {
  protected:
    std::string read(const std::string &name) const
    {
        std::ifstream in(path(name), std::ios::binary);
        std::stringstream all;
        all << in.rdbuf();
        return all.str();
    }
    size_t lines(const std::string &name) const
    {
        const std::string text = read(name);
        return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    }
};

} // namespace eval_test
