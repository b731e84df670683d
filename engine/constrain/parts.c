/* engine/constrain/parts.c - counters: code points of a JSON string, residues of a number. */
#include "engine/constrain/parts.h"

/* Places in a JSON string; in value[0], the count is value[1]. The other parts of a product see to
 * it that the text is a string. A character counts as soon as it cannot be but a further one. */
enum {
    BEFORE, /* the quotation mark */
    BETWEEN, /* characters */
    TAIL1, /* bytes of a character that are left */
    TAIL2,
    TAIL3,
    ESCAPE, /* after a backslash */
    HEX1, /* the first digit of \uXXXX */
    HEX2,
    HEX2_D, /* after a d */
    HEX3,
    HEX4,
    HIGH3, /* the same in the first half of a pair */
    HIGH4,
    HALF, /* the second half follows, up to its HEX3 */
    HALF_ESCAPE,
    HALF1,
    HALF2,
    AFTER,
};

static bool count(const weir_part *part, uint32_t value[WEIR_COUNTER_WORDS], uint32_t place)
{
    value[0] = place;
    if (part->high != WEIR_LENGTH_UNLIMITED) return value[1]++ < part->high;
    if (value[1] < part->low) value[1]++;
    return true;
}

static bool step_between(const weir_part *part, uint32_t value[WEIR_COUNTER_WORDS], unsigned byte)
{
    if (byte == '"') {
        value[0] = AFTER;
        return value[1] >= part->low;
    }
    if (byte == '\\') {
        value[0] = ESCAPE;
        return part->high == WEIR_LENGTH_UNLIMITED || value[1] < part->high;
    }
    const uint32_t tail = byte < 0xC0 ? BETWEEN : byte < 0xE0 ? TAIL1 : byte < 0xF0 ? TAIL2 : TAIL3;
    return count(part, value, tail);
}

static bool step_length(const weir_part *part, uint32_t value[WEIR_COUNTER_WORDS], unsigned byte)
{
    const unsigned letter = byte | 0x20;
    switch (value[0]) {
    case BETWEEN: return step_between(part, value, byte);
    case ESCAPE:
        if (byte != 'u') return count(part, value, BETWEEN);
        value[0] = HEX1;
        return true;
    case HEX1: value[0] = letter == 'd' ? HEX2_D : HEX2; return true;
    case HEX2: return count(part, value, HEX3);
    case HEX2_D: return count(part, value, byte >= '0' && byte <= '7' ? HEX3 : HIGH3);
    case BEFORE:
    case TAIL1:
    case HEX4: value[0] = BETWEEN; return true;
    case TAIL2:
    case TAIL3: value[0]--; return true;
    case HALF2: value[0] = HEX3; return true;
    case HEX3:
    case HIGH3:
    case HIGH4:
    case HALF:
    case HALF_ESCAPE:
    case HALF1: value[0]++; return true;
    default: return false;
    }
}

/* Places in a number: value[0], the residue in value[1] and value[2]. */
enum { WHOLE = 0, FRACTION = 1 /* plus the digits so far */ };

static bool step_multiple(const weir_part *part, uint32_t value[WEIR_COUNTER_WORDS], unsigned byte)
{
    uint64_t residue = (uint64_t)value[2] << 32 | value[1];
    if (byte == '-') return true;
    if (byte == '.') {
        value[0] = FRACTION;
        return true;
    }
    const uint64_t digit = byte - '0';
    if (digit > 9) return false;
    if (value[0] >= FRACTION) {
        if (value[0] - FRACTION >= part->high) return digit == 0;
        value[0]++;
    }
    residue = (residue * 10 + digit) % part->low;
    value[1] = (uint32_t)residue;
    value[2] = (uint32_t)(residue >> 32);
    return true;
}

bool weir_counter_step(const weir_part *part, uint32_t value[WEIR_COUNTER_WORDS], unsigned byte)
{
    return part->kind == WEIR_PART_LENGTH ? step_length(part, value, byte)
                                          : step_multiple(part, value, byte);
}

bool weir_counter_accepts(const weir_part *part, const uint32_t value[WEIR_COUNTER_WORDS])
{
    if (part->kind == WEIR_PART_LENGTH) return value[0] == AFTER;
    uint64_t residue = (uint64_t)value[2] << 32 | value[1];
    for (uint64_t i = value[0] == WHOLE ? 0 : value[0] - FRACTION; i < part->high; i++) {
        residue = residue * 10 % part->low;
    }
    return residue == 0;
}

bool weir_parts_accept(const weir_rules *rules, const weir_rule *rule, const uint32_t *key)
{
    for (uint32_t p = 0; p < rule->n_parts; p++) {
        const weir_part *const part = &rules->parts[rule->first_part + p];
        if (part->kind == WEIR_PART_LENGTH || part->kind == WEIR_PART_MULTIPLE) {
            if (!weir_counter_accepts(part, key)) return false;
            key += WEIR_COUNTER_WORDS;
            continue;
        }
        bool accepts = false;
        const uint32_t n = *key++;
        for (uint32_t i = 0; i < n; i++) {
            accepts |= rules->nfa.states[key[i]].kind == WEIR_NFA_ACCEPT;
        }
        key += n;
        if (accepts != (part->kind == WEIR_PART_MATCH)) return false;
    }
    return true;
}

void weir_counter_borders(const weir_part *part, uint64_t borders[4])
{
    static const unsigned char in_strings[] = "\"#08:\\]ACDEGacdeguv\x80\xC0\xE0\xF0";
    static const char in_numbers[] = "-./0123456789:";
    if (part->kind == WEIR_PART_LENGTH) {
        for (size_t i = 0; in_strings[i] != 0; i++) weir_byte_add(borders, in_strings[i]);
    } else {
        for (size_t i = 0; in_numbers[i] != 0; i++) {
            weir_byte_add(borders, (unsigned char)in_numbers[i]);
        }
    }
}
