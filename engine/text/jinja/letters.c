/* engine/text/jinja/letters.c - upper and lower case by the Unicode tables of utf8proc, plus
 * letters that map to several code points. */
#include <string.h>
#include <utf8proc.h>

#include "engine/text/jinja/state.h"

/* Letters whose upper case is more than one code point (SpecialCasing.txt, unconditional Latin,
 * Armenian and ligatures). */
static const struct {
    uint16_t letter, upper[3], title[3];
} special[] = {
    { 0x00df, { 'S', 'S' }, { 'S', 's' } },
    { 0x0149, { 0x02bc, 'N' }, { 0x02bc, 'N' } },
    { 0x01f0, { 'J', 0x030c }, { 'J', 0x030c } },
    { 0x0390, { 0x0399, 0x0308, 0x0301 }, { 0x0399, 0x0308, 0x0301 } },
    { 0x03b0, { 0x03a5, 0x0308, 0x0301 }, { 0x03a5, 0x0308, 0x0301 } },
    { 0x0587, { 0x0535, 0x0552 }, { 0x0535, 0x0582 } },
    { 0x1e96, { 'H', 0x0331 }, { 'H', 0x0331 } },
    { 0x1e97, { 'T', 0x0308 }, { 'T', 0x0308 } },
    { 0x1e98, { 'W', 0x030a }, { 'W', 0x030a } },
    { 0x1e99, { 'Y', 0x030a }, { 'Y', 0x030a } },
    { 0x1e9a, { 'A', 0x02be }, { 'A', 0x02be } },
    { 0xfb00, { 'F', 'F' }, { 'F', 'f' } },
    { 0xfb01, { 'F', 'I' }, { 'F', 'i' } },
    { 0xfb02, { 'F', 'L' }, { 'F', 'l' } },
    { 0xfb03, { 'F', 'F', 'I' }, { 'F', 'f', 'i' } },
    { 0xfb04, { 'F', 'F', 'L' }, { 'F', 'f', 'l' } },
    { 0xfb05, { 'S', 'T' }, { 'S', 't' } },
    { 0xfb06, { 'S', 'T' }, { 'S', 't' } },
};

static bool is_cased(uint32_t code)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
           category == UTF8PROC_CATEGORY_LT;
}

static weir_status add_changed(
    weir_jinja_builder *out, uint32_t code, weir_jinja_case letters, weir_jinja_origin origin
)
{
    if (letters == WEIR_JINJA_LOWER) {
        if (code == 0x130)
            WEIR_TRY(weir_jinja_add_code(out, 'i', origin)); /* I with dot: i and a combining dot */
        return weir_jinja_add_code(
            out, code == 0x130 ? 0x307 : (uint32_t)utf8proc_tolower((utf8proc_int32_t)code), origin
        );
    }
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (special[i].letter != code) continue;
        const uint16_t *to = letters == WEIR_JINJA_UPPER ? special[i].upper : special[i].title;
        for (size_t k = 0; k < 3 && to[k]; k++) WEIR_TRY(weir_jinja_add_code(out, to[k], origin));
        return WEIR_OK;
    }
    const utf8proc_int32_t letter = (utf8proc_int32_t)code;
    return weir_jinja_add_code(
        out,
        (uint32_t)(letters == WEIR_JINJA_UPPER ? utf8proc_toupper(letter) : utf8proc_totitle(letter)
        ),
        origin
    );
}

/* True for a capital sigma after a letter and not before one. */
static bool is_final_sigma(const weir_jinja_string *string, size_t at, size_t size, uint32_t code)
{
    size_t step = 0;
    if (code != 0x3a3 || at == 0 || !is_cased(weir_jinja_decode_last(string->bytes, at, &step)))
        return false;
    const size_t next = at + size;
    return next == string->size ||
           !is_cased(weir_jinja_decode(string->bytes + next, string->size - next, &step));
}

weir_status weir_jinja_change_case(
    weir_jinja_state *state, weir_jinja_value *out, const weir_jinja_string *string,
    weir_jinja_case letters
)
{
    weir_jinja_builder text = weir_jinja_builder_new(state->arena);
    bool start = true; /* start of a word, or of the text for CAPITALIZE */
    WEIR_TRY(weir_jinja_work(state, string->size, WEIR_JINJA_MADE));
    for (size_t at = 0, size = 0, end = 0; at < string->size; at += size) {
        const uint32_t code = weir_jinja_decode(string->bytes + at, string->size - at, &size);
        const weir_jinja_origin origin = weir_jinja_string_origin(string, at, &end);
        const weir_jinja_case first =
            letters == WEIR_JINJA_WORDS ? WEIR_JINJA_UPPER : WEIR_JINJA_TITLE;
        const bool by_word = letters != WEIR_JINJA_UPPER && letters != WEIR_JINJA_LOWER;
        const weir_jinja_case now = !by_word ? letters : start ? first : WEIR_JINJA_LOWER;
        /* Ill-formed bytes are copied. */
        if (size == 1 && code >= 0x80)
            WEIR_TRY(weir_jinja_add(&text, string->bytes + at, 1, origin));
        else if (now == WEIR_JINJA_LOWER && is_final_sigma(string, at, size, code))
            WEIR_TRY(weir_jinja_add_code(&text, 0x3c2, origin));
        else
            WEIR_TRY(add_changed(&text, code, now, origin));
        if (letters == WEIR_JINJA_WORDS)
            start = weir_jinja_is_space(code) || (code < 128 && code && strchr("-({[<", (int)code));
        else
            start = letters == WEIR_JINJA_TITLE && !is_cased(code);
    }
    WEIR_TRY(weir_jinja_builder_finish(&text, out));
    out->as.string->markup = string->markup;
    return WEIR_OK;
}

bool weir_jinja_printable(uint32_t code)
{
    if (code < 0x7f) return code >= 0x20;
    switch ((int)utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

bool weir_jinja_is_letter(uint32_t code)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    return is_cased(code) || category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
}

bool weir_jinja_is_digit(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
}
