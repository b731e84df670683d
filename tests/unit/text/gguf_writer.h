/* tests/unit/text/gguf_writer.h - GGUF files without tensors, for tests of vocabularies. */
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

/* Writes the keys of a GGUF file without tensors. */
class GgufWriter {
  public:
    void text(const std::string &key, const std::string &value)
    {
        head(key, 8);
        string(value);
    }
    void boolean(const std::string &key, bool value)
    {
        head(key, 7);
        bytes_ += static_cast<char>(value);
    }
    void integer(const std::string &key, uint32_t value)
    {
        head(key, 4);
        number(value, 4);
    }
    void integers(const std::string &key, const std::vector<int32_t> &values)
    {
        array(key, 5, values.size());
        for (const int32_t value : values) number(static_cast<uint32_t>(value), 4);
    }
    void bytes(const std::string &key, const std::string &values)
    {
        array(key, 0, values.size());
        bytes_ += values;
    }
    void numbers(const std::string &key, const std::vector<float> &values)
    {
        array(key, 6, values.size());
        for (const float value : values) {
            uint32_t bits;
            std::memcpy(&bits, &value, sizeof bits);
            number(bits, 4);
        }
    }
    void texts(const std::string &key, const std::vector<std::string> &values)
    {
        array(key, 8, values.size());
        for (const std::string &value : values) string(value);
    }
    std::string finish() const
    {
        GgufWriter file;
        file.bytes_ = "GGUF";
        file.number(3, 4);
        file.number(0, 8);
        file.number(n_keys_, 8);
        return file.bytes_ + bytes_;
    }

  private:
    void number(uint64_t value, int n)
    {
        for (int i = 0; i < n; i++) bytes_ += static_cast<char>(value >> (8 * i));
    }
    void string(const std::string &value)
    {
        number(value.size(), 8);
        bytes_ += value;
    }
    void head(const std::string &key, uint32_t type)
    {
        n_keys_++;
        string(key);
        number(type, 4);
    }
    void array(const std::string &key, uint32_t type, size_t n)
    {
        head(key, 9);
        number(type, 4);
        number(n, 8);
    }

    std::string bytes_;
    uint64_t n_keys_ = 0;
};
