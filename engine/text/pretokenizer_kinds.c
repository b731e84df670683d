/* engine/text/pretokenizer_kinds.c - the patterns that GGUF's tokenizer.ggml.pre stands for, as
 * published with the models; tokenizer.json contains its own. GGUF stores neither the normaliser
 * nor ignore_merges: the name implies them. */
#include <string.h>

#include "engine/text/pretokenizer.h"

/* clang-format off */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN35 \
    CONTRACTIONS \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define LLAMA3 \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
    SPACES
#define GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK_V3 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" \
    "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
/* o200k: the contractions belong to the word before them. */
#define GPT4O \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?" \
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTIONS "?" \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define SEED_CODER \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES
/* Kimi intersects sets with [^\p{Han}], which look-ahead says too. */
#define NOT_HAN      "(?:(?!\\p{Han})"
#define KIMI_K2 \
    "[\\p{Han}]+" \
    "|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN UPPER ")*" NOT_HAN LOWER ")+" CONTRACTIONS "?" \
    "|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN UPPER ")+" NOT_HAN LOWER ")*" CONTRACTIONS "?" \
    "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define PUNCTUATION \
    "!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}"
/* deepseek-llm lists the ranges of letters with case, in the Unicode version of its time. */
#define CASED_LETTERS \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}" \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}" \
    "\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}" \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}" \
    "\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}" \
    "\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}" \
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}" \
    "\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}" \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}" \
    "\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}" \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}" \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}" \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}" \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}" \
    "\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}" \
    "\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}" \
    "\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

const char *const weir_pattern_gpt2 = GPT2;

/* NFC is given where the models are known to apply it; llama.cpp never does. The first name of a
 * split is the one that is written. */
#define LIKE_LLAMA3(name) { name, { LLAMA3 }, .ignore_merges = true, .add_bos = true }
#define LIKE_GPT2(name)   { name, { GPT2 }, .nfc = false }
#define LIKE_SMOLLM(name) { name, { "\\p{N}", GPT2 }, .nfc = false }
#define LIKE_GPT4O(name)  { name, { GPT4O }, .nfc = false }
#define LIKE_DEEPSEEK_V3(name) \
    { name, \
      { "\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", \
        DEEPSEEK_V3 }, .nfc = false }
static const weir_pretokenizer_kind kinds[] = {
    { "qwen2",            { QWEN2 },  .nfc = true },
    { "deepseek-r1-qwen", { QWEN2 },  .nfc = true },
    { "f2llmv2",          { QWEN2 },  .nfc = true },
    { "qwen35",           { QWEN35 }, .nfc = true },
    { "stablelm2",        { QWEN2 }, .nfc = false },
    { "hunyuan",          { QWEN2 }, .nfc = false },
    { "solar-open",       { QWEN2 }, .nfc = false },
    { "megrez",           { QWEN2 }, .nfc = false },
    { "kormo",            { QWEN2 }, .nfc = false },
    { "grok-2",           { QWEN2 }, .nfc = false },
    LIKE_LLAMA3("llama-bpe"), LIKE_LLAMA3("llama3"), LIKE_LLAMA3("llama-v3"),
    LIKE_LLAMA3("lfm2"), LIKE_LLAMA3("pixtral"), LIKE_LLAMA3("falcon3"),
    LIKE_LLAMA3("falcon-h1"), LIKE_LLAMA3("midm-2.0"), LIKE_LLAMA3("jina-v5-nano"),
    { "smaug-bpe",        { LLAMA3 }, .nfc = false },
    { "dbrx",             { LLAMA3 }, .nfc = false },
    { "glm4",             { LLAMA3 }, .ignore_merges = true },
    { "chatglm-bpe",      { LLAMA3 }, .nfc = false },
    { "glm5",             { LLAMA3 }, .ignore_merges = true },
    LIKE_GPT2("gpt-2"), LIKE_GPT2("phi-2"), LIKE_GPT2("gigachat"), LIKE_GPT2("a.x-4.0"),
    LIKE_GPT2("mellum"), LIKE_GPT2("exaone4"), LIKE_GPT2("mpt"), LIKE_GPT2("olmo"),
    LIKE_GPT2("jais"), LIKE_GPT2("trillion"), LIKE_GPT2("granite-docling"),
    LIKE_SMOLLM("smollm"), LIKE_SMOLLM("refact"), LIKE_SMOLLM("starcoder"),
    LIKE_SMOLLM("command-r"), LIKE_SMOLLM("codeshell"), LIKE_SMOLLM("exaone"),
    LIKE_SMOLLM("minerva-7b"), LIKE_SMOLLM("mellum2"),
    LIKE_GPT4O("gpt-4o"), LIKE_GPT4O("minimax-m2"), LIKE_GPT4O("llama4"),
    LIKE_GPT4O("kanana2"), LIKE_GPT4O("talkie"),
    { "seed-coder",       { SEED_CODER }, .nfc = false },
    { "kimi-k2",          { KIMI_K2 }, .nfc = false },
    { "tekken",           { TEKKEN }, .ignore_merges = true, .add_bos = true },
    LIKE_DEEPSEEK_V3("deepseek-v3"), LIKE_DEEPSEEK_V3("hunyuan-dense"),
    LIKE_DEEPSEEK_V3("joyai-llm"), LIKE_DEEPSEEK_V3("hy_v4"),
    { "deepseek-llm",
      { "[\\r\\n]", "\\s?[" CASED_LETTERS "]+", "\\s?[" PUNCTUATION "]+", "\\s+$",
        "[\\x{4E00}-\\x{9FA5}\\x{0800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+", "\\p{N}" }, .nfc = false },
};
/* clang-format on */

weir_buffer weir_pretokenizer_list_known(void)
{
    weir_buffer known = { 0 };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        (void)!weir_buffer_format(&known, "%s%s", i > 0 ? ", " : "", kinds[i].name);
    return known;
}

const weir_pretokenizer_kind *weir_pretokenizer_find(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kinds[i].name, name) == 0) return &kinds[i];
    return NULL;
}

const weir_pretokenizer_kind *weir_pretokenizer_at(size_t index)
{
    return index < sizeof kinds / sizeof kinds[0] ? &kinds[index] : NULL;
}
