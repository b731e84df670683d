/* tests/golden/chat_records.h - records of rendered chats, and what is expected of one. Functions
 * throw `failure`. */
#pragma once
#include <jansson.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/chat.h"
#include "tests/golden/chat_golden.h"

namespace golden_chat {

using json = std::unique_ptr<json_t, decltype(&json_decref)>;
using chat_ptr = std::unique_ptr<weir_chat_template, decltype(&weir_chat_template_close)>;

constexpr int64_t NOW = 1795185000; /* 2026-11-20 14:30:00 */

struct failure {
    std::string text;
};

bool read_file(const std::string &path, std::string *out);
json parse(const std::string &text, const std::string &what);
std::vector<json> read_records(const std::string &path);
/* "" if it is no string. */
std::string text_of(const json_t *value);

struct rendering {
    weir_status status = WEIR_OK;
    std::string text, error;
    std::vector<weir_span> user;
};

rendering render(const weir_chat_template *chat, const weir_chat_input &input);
chat_ptr open_template(const std::string &text);
/* The text of the record, and the user's ranges in order. */
void expect_text(const rendering &got, const json_t *record);

/* One line for a group of records. */
class group {
  public:
    group(std::string name, const char *filter, weir_golden_counts *counts)
        : name_(std::move(name)), counts_(counts), runs_(name_.find(filter) != std::string::npos)
    {
    }
    bool runs() const { return runs_; }
    template <typename F> void record(F &&check)
    {
        n_++;
        try {
            check();
        } catch (const failure &f) {
            wrong(f.text);
        } catch (const std::exception &e) {
            wrong(e.what());
        }
    }
    void skip(const std::string &reason) { skipped_ = reason; }
    bool finish()
    {
        if (!runs_ || (n_ == 0 && skipped_.empty())) return true;
        counts_->records += n_;
        if (!skipped_.empty()) {
            counts_->skipped++;
            std::printf("skipped %s %s\n", name_.c_str(), skipped_.c_str());
        } else if (wrong_) {
            counts_->failed++;
            std::printf(
                "FAIL %s %zu of %zu records, %s\n", name_.c_str(), wrong_, n_, first_.c_str()
            );
        } else {
            counts_->passed++;
            std::printf("ok %s %zu records\n", name_.c_str(), n_);
        }
        return wrong_ == 0;
    }

  private:
    void wrong(const std::string &why)
    {
        if (wrong_++ == 0) first_ = "record " + std::to_string(n_) + ": " + why;
    }
    std::string name_, first_, skipped_;
    weir_golden_counts *counts_;
    bool runs_;
    size_t n_ = 0, wrong_ = 0;
};

/* Counts a failure outside of any record; returns 1. */
int report(const char *what, const std::string &why, weir_golden_counts *counts);

} // namespace golden_chat
