/* engine/formats/foreign.c - first bytes of files that users pass by mistake. */
#include "engine/formats/foreign.h"

#include <string.h>

#include "engine/base/utf8.h"
#include "engine/formats/printable.h"

enum { LOOKED_AT = 512, LENGTH_BYTES = 8 };

typedef struct beginning {
    const char *bytes;
    size_t n;
    const char *kind;
} beginning;

#define BYTES(text) (text), sizeof(text) - 1

static const beginning beginnings[] = {
    { BYTES("version https://git-lfs"),
      "a Git LFS pointer: the file itself was not fetched, run git lfs pull" },
    { BYTES("PK\x03\x04"),
      "a ZIP archive, as PyTorch writes them: convert it to safetensors or GGUF" },
    { BYTES("\x80\x02"),
      "a Python pickle, as PyTorch writes them: convert it to safetensors or GGUF" },
    { BYTES("\x80\x04"), "a Python pickle: convert it to safetensors or GGUF" },
    { BYTES("lmgg"), "a GGML file from before GGUF: convert the model again" },
    { BYTES("fmgg"), "a GGML file from before GGUF: convert the model again" },
    { BYTES("tjgg"), "a GGML file from before GGUF: convert the model again" },
    { BYTES("\x89HDF"), "an HDF5 file: convert it to safetensors or GGUF" },
    { BYTES("\x93NUMPY"), "a NumPy array: convert it to safetensors" },
    { BYTES("\x1f\x8b"), "compressed by gzip: unpack it" },
    { BYTES("\xfd"
            "7zXZ"),
      "compressed by xz: unpack it" },
    { BYTES("BZh"), "compressed by bzip2: unpack it" },
    { BYTES("\x28\xb5\x2f\xfd"), "compressed by zstd: unpack it" },
    { BYTES("\x7f"
            "ELF"),
      "a program" },
};

bool weir_container_of(weir_container *out, const unsigned char *bytes, size_t n)
{
    if (n >= 4 && memcmp(bytes, "GGUF", 4) == 0) {
        *out = WEIR_CONTAINER_GGUF;
        return true;
    }
    /* The upper half of a safetensors header length is zero, because headers end at 100 MB. */
    if (n <= LENGTH_BYTES || bytes[LENGTH_BYTES] != '{' || memcmp(bytes + 4, "\0\0\0\0", 4) != 0)
        return false;
    *out = WEIR_CONTAINER_SAFETENSORS;
    return true;
}

/* True for printable UTF-8 with white space; the last sequence may be truncated. */
static bool is_text(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0, step; i < n; i += step) {
        step = weir_utf8_sequence((const char *)bytes + i, n - i);
        if (step == 0) return i + 4 > n && i > 0;
        if (bytes[i] == 0x7f || (bytes[i] < 0x20 && memchr("\t\n\r\f", bytes[i], 4) == NULL))
            return false;
    }
    return true;
}

const char *weir_foreign_kind(const unsigned char *bytes, size_t n)
{
    weir_container container;
    if (n == 0) return "an empty file: was the download interrupted?";
    if (weir_container_of(&container, bytes, n)) return NULL;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++) {
        if (n >= beginnings[i].n && memcmp(bytes, beginnings[i].bytes, beginnings[i].n) == 0)
            return beginnings[i].kind;
    }
    const size_t looked_at = n < LOOKED_AT ? n : LOOKED_AT;
    size_t first = 0;
    if (!is_text(bytes, looked_at)) return NULL;
    while (first < looked_at && memchr(" \t\r\n", bytes[first], 4) != NULL) first++;
    if (first < looked_at && bytes[first] == '<')
        return "an HTML or XML page: did the download need a login?";
    if (first < looked_at && (bytes[first] == '{' || bytes[first] == '['))
        return "JSON text: if it belongs to a checkpoint, give the folder of the checkpoint";
    return "a text file";
}
