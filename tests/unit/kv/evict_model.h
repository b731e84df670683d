/* Sequences whose heads lose rows, with a plain list of the rows that each head should hold. */
#pragma once
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/kv/pool/sequence.h"
#include "engine/kv/prune/evict.h"
#include "engine/kv/tiers/residency.h"

namespace evict {

constexpr int kv_heads = 2, key_dim = 64, value_dim = 32;

/* A row as it is read now, and the bytes of it in parts that code each row by itself. */
struct Row {
    std::vector<float> k, v;
    std::vector<char> bytes;
};
using Rows = std::vector<Row>;
using Lists = std::vector<std::vector<int32_t>>; /* per head over all layers */

struct Sequence {
    weir_kv_table table = {};
    std::vector<Rows> heads;
};

/* The lists as the interface takes them. */
struct Keep {
    std::vector<int32_t> layers, slots;
    std::vector<int64_t> counts;
    weir_kv_keep keep = {};
};

struct Options {
    std::vector<weir_kv_pair> formats;
    int64_t n_blocks = 64, max_rows = 1024;
    weir_kv_sinks sinks = {};
    int64_t n_sink_blocks = 0, n_disk_blocks = 0;
};

class Evict : public ::testing::Test {
  protected:
    void open(const Options &options);
    void TearDown() override;
    Sequence sequence();
    void close(Sequence *t);
    int64_t heads() const { return spec_.n_layers * kv_heads; }

    /* Writes n new rows to each head; false when there is no room. */
    bool append(Sequence *t, int64_t n);
    /* The same without writing them, for sequences that are only in the way. */
    bool fill(Sequence *t, int64_t n);
    /* Random lists for the listed layers; others keep all. */
    Lists random_lists(const Sequence &t, const std::vector<int32_t> &layers);
    Keep keep_of(const std::vector<int32_t> &layers, const Lists &lists) const;
    /* The model only. */
    void keep_rows(Sequence *t, const std::vector<int32_t> &layers, const Lists &lists) const;
    /* Both, and everything is checked. */
    void evict(Sequence *t, const std::vector<int32_t> &layers, const Lists &lists);

    void expect_rows(const Sequence &t);
    void expect_sound(const std::vector<const Sequence *> &sequences);
    /* Bytes of all pages and unsealed rows, and everything that the table says. */
    std::string picture(const Sequence &t);

    std::mt19937 random_{ 11 };
    int64_t n_rotated_ = 0; /* rows at the beginning that get other keys; random lists keep them */
    std::vector<weir_kv_pair> formats_;
    std::vector<weir_kv_geometry> geometry_;
    std::string folder_;
    weir_kv_spec spec_ = {};
    weir_ledger *ledger_ = nullptr;
    weir_kv_store *store_ = nullptr;
    weir_stream *stream_ = nullptr;
    weir_kv_evictor *evictor_ = nullptr;
    weir_error error_ = {};

  private:
    void expect_products(const Sequence &t, int64_t head);
    void write(Sequence *t, int64_t head, int64_t n);
    /* Other for each head, row and number of rows that stay. */
    static std::vector<float> rotated_key(int64_t head, int64_t row, int64_t n_keep);
    static void rotate(void *user, const weir_policy_tile *tile, int64_t n_keep);
    Row rotated(const Row &row, int64_t head, int64_t i, int64_t n_keep) const;
    weir_kv_pair pair_at(int64_t head, int64_t page) const
    {
        return weir_kv_pair_at(formats_[(size_t)(head / kv_heads)], spec_.sinks, page);
    }
    void push(Rows *rows, int64_t head, const Row &row) const;
    bool is_whole(int64_t head) const
    {
        return weir_kv_any_unsealed(formats_[(size_t)(head / kv_heads)], spec_.sinks);
    }
};

} // namespace evict
