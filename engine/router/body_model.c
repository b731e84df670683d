#include "engine/router/body_model.h"

#include <string.h>

#include "engine/base/hex.h"

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void begin_string(weir_body_model *m)
{
    m->in_string = m->is_whole = true;
    m->n = 0;
    m->escape = 0;
}

static void add(weir_body_model *m, uint32_t c)
{
    if (c == 0 || c >= 0x80 || m->n + 1 >= sizeof m->text)
        m->is_whole = false;
    else
        m->text[m->n++] = (char)c;
}

static void read_escape(weir_body_model *m, char c)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    if (m->escape > 1) {
        const int digit = weir_hex_digit(c);
        if (digit < 0) {
            m->state = WEIR_BODY_NONE;
            return;
        }
        m->code = m->code * 16 + (uint32_t)digit;
        if (--m->escape > 1) return;
        m->escape = 0;
        add(m, m->code);
        return;
    }
    const char *const at = c != '\0' ? strchr(from, c) : NULL;
    m->escape = 0;
    if (c == 'u') {
        m->escape = 5;
        m->code = 0;
    } else if (at != NULL) {
        add(m, (unsigned char)to[at - from]);
    } else {
        add(m, (unsigned char)c);
    }
}

/* A byte of a string; returns true if it ends it. */
static bool read_string(weir_body_model *m, char c)
{
    if (m->escape > 0) {
        read_escape(m, c);
        return false;
    }
    if (c == '\\') {
        m->escape = 1;
        return false;
    }
    if (c != '"') {
        add(m, (unsigned char)c);
        return false;
    }
    m->in_string = false;
    m->text[m->n] = '\0';
    return true;
}

static void read_key(weir_body_model *m, char c)
{
    if (m->in_string) {
        if (!read_string(m, c)) return;
        m->is_model = m->is_whole && strcmp(m->text, "model") == 0;
        m->state = WEIR_BODY_COLON;
    } else if (c == '"') {
        begin_string(m);
    } else if (c != ',' && !is_space(c)) {
        m->state = WEIR_BODY_NONE; /* the end of the object, or no JSON */
    }
}

static void read_value(weir_body_model *m, char c)
{
    if (m->in_string) {
        if (!read_string(m, c)) return;
        m->state = WEIR_BODY_FOUND;
        if (!m->is_whole) memcpy(m->text, "?", 2);
    } else if (c == '"') {
        begin_string(m);
    } else if (!is_space(c)) {
        m->state = WEIR_BODY_NONE; /* null, or of a wrong type, which its server refuses */
    }
}

static void skip(weir_body_model *m, char c)
{
    if (m->in_string) {
        if (m->escape > 0)
            m->escape = 0;
        else if (c == '\\')
            m->escape = 1;
        else if (c == '"')
            m->in_string = false;
    } else if (c == '"') {
        m->in_string = true;
        m->escape = 0;
    } else if (c == '{' || c == '[') {
        m->depth++;
    } else if (m->depth > 0 && (c == '}' || c == ']')) {
        m->depth--;
    } else if (m->depth == 0 && c == ',') {
        m->state = WEIR_BODY_KEY;
    } else if (m->depth == 0 && c == '}') {
        m->state = WEIR_BODY_NONE;
    }
}

bool weir_body_model_read(weir_body_model *m, const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = bytes[i];
        switch (m->state) {
        case WEIR_BODY_BEGIN:
            if (!is_space(c)) m->state = c == '{' ? WEIR_BODY_KEY : WEIR_BODY_NONE;
            break;
        case WEIR_BODY_KEY: read_key(m, c); break;
        case WEIR_BODY_COLON:
            if (c == ':')
                m->state = m->is_model ? WEIR_BODY_VALUE : WEIR_BODY_SKIP;
            else if (!is_space(c))
                m->state = WEIR_BODY_NONE;
            break;
        case WEIR_BODY_VALUE: read_value(m, c); break;
        case WEIR_BODY_SKIP: skip(m, c); break;
        case WEIR_BODY_FOUND:
        case WEIR_BODY_NONE: return true;
        }
    }
    return m->state == WEIR_BODY_FOUND || m->state == WEIR_BODY_NONE;
}
