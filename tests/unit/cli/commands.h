/* Commands on the demo model, with standard input from a test. */
#pragma once
#include <unistd.h>

#include <thread>

#include "tests/unit/cli/program.h"

namespace program {

inline const std::string messages = R"([{"role": "user", "content": "Hello"}])";

/* The first number after this name. */
inline double number(const std::string &json, const std::string &name)
{
    const size_t at = json.find("\"" + name + "\": ");
    return at == std::string::npos ? -1.0 : atof(json.c_str() + at + name.size() + 4);
}

/* Standard input is a pipe that holds `text`, written while it is read. */
class Piped {
  public:
    explicit Piped(const std::string &text) : before_(dup(STDIN_FILENO))
    {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        EXPECT_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
        close(ends[0]);
        writer_ = std::thread([text, fd = ends[1]] {
            for (size_t at = 0; at < text.size();) {
                const ssize_t n =
                    write(fd, text.data() + at, std::min<size_t>(text.size() - at, 5000));
                if (n <= 0) break;
                at += static_cast<size_t>(n);
            }
            close(fd);
        });
    }
    Piped(const Piped &) = delete;
    Piped &operator=(const Piped &) = delete;
    ~Piped()
    {
        writer_.join();
        dup2(before_, STDIN_FILENO);
        close(before_);
    }

  private:
    int before_;
    std::thread writer_;
};

class Commands : public Folder {
  protected:
    /* The demo model with another chat template. */
    std::string with_template(const std::string &text) const
    {
        const std::string copy = folder_ + "/model";
        std::filesystem::create_directories(copy);
        for (const auto &entry : std::filesystem::directory_iterator(demo))
            std::filesystem::copy_file(entry.path(), copy + "/" + entry.path().filename().string());
        std::filesystem::permissions(copy, std::filesystem::perms::owner_all);
        std::filesystem::remove(copy + "/chat_template.jinja");
        std::ofstream(copy + "/chat_template.jinja") << text;
        return copy;
    }
};

} // namespace program
