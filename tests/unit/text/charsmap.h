/* tests/unit/text/charsmap.h - a precompiled charsmap made for a test: a double array whose nodes
 * have a block of 256 units each, so that none collide. */
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

class CharsmapWriter {
  public:
    void add(const std::string &key, const std::string &to)
    {
        size_t node = 0;
        for (const char c : key) {
            auto &edges = nodes_[node].edges;
            const auto found = edges.find(static_cast<unsigned char>(c));
            if (found != edges.end()) {
                node = found->second;
                continue;
            }
            edges[static_cast<unsigned char>(c)] = nodes_.size();
            node = nodes_.size();
            nodes_.emplace_back();
        }
        nodes_[node].value = static_cast<int64_t>(texts_.size());
        texts_ += to + '\0';
    }
    std::string finish() const
    {
        std::vector<uint32_t> units((nodes_.size() + 1) * 256, 0xFF);
        units[0] = link(0, 0, 0);
        place(&units, 0);
        std::string out;
        number(&out, static_cast<uint32_t>(units.size() * 4));
        for (const uint32_t unit : units) number(&out, unit);
        return out + texts_;
    }

  private:
    struct Node {
        std::map<unsigned char, size_t> edges;
        int64_t value = -1;
    };
    static void number(std::string *out, uint32_t value)
    {
        for (int i = 0; i < 4; i++) *out += static_cast<char>(value >> 8 * i);
    }
    /* The unit at `at` that leads to the block of a node. */
    uint32_t link(size_t at, size_t node, unsigned char label) const
    {
        const size_t block = (node + 1) * 256;
        const bool leaf = nodes_[node].value >= 0;
        return static_cast<uint32_t>((at ^ block) << 10 | (leaf ? 1U << 8 : 0) | label);
    }
    void place(std::vector<uint32_t> *units, size_t node) const
    {
        const size_t block = (node + 1) * 256;
        if (nodes_[node].value >= 0)
            (*units)[block] = 1U << 31 | static_cast<uint32_t>(nodes_[node].value);
        for (const auto &[label, child] : nodes_[node].edges) {
            const size_t at = block ^ label;
            (*units)[at] = link(at, child, label);
            place(units, child);
        }
    }

    std::vector<Node> nodes_ = std::vector<Node>(1);
    std::string texts_;
};
