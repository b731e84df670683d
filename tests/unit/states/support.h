// Databases of small states: session files of one layer, made once and linked to where the database
// wants them.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/states/states.h"

/* Model digest of files and databases here. */
extern const uint64_t test_model[2];

/* A session file of n_tokens tokens at `path`. `bits`: with a state, packed and merged. */
void write_session(
    const std::string &path, int32_t n_tokens, uint64_t model = 0, int32_t bits = 0,
    const char *isa = "v3"
);

struct Source {
    std::string file; /* that add copies by a link, or fails to: "" */
    int calls = 0;
};
/* weir_new_state.write */
weir_status link_source(void *user, const char *path, int64_t max_bytes, weir_error *error);

class Database : public ::testing::Test {
  protected:
    void SetUp() override;
    void TearDown() override;
    /* Closes what is open, and opens again. */
    void open(bool writes = true, weir_memory_tracker *tracker = nullptr);
    void close();
    weir_status add(
        const std::string &label, const std::vector<float> &vector = {},
        const char *metadata = nullptr, uint64_t source = 0
    );
    /* The name that it got */
    std::string added(const std::string &label, const std::vector<float> &vector = {});
    std::vector<std::string> names(); /* newest first */
    std::vector<std::string> route(const std::vector<float> &vector, size_t most);
    size_t n_files() const; /* session files in the folder */
    std::string file_of(const std::string &name);

    std::string work_, folder_, log_;
    Source source_;
    weir_states *states_ = nullptr;
    weir_state_info info_ = {}; /* of what was added last */
    weir_error error_ = {};
    int32_t dim_ = 4;
    int64_t disk_ = 0;
};

std::string slurp(const std::string &path);
void spill(const std::string &path, const std::string &bytes);
