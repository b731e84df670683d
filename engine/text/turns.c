#include "engine/text/turns.h"

void weir_turn_starts(
    const weir_tokenizer *tokenizer, const int32_t *ids, size_t n, int32_t *starts, int32_t n_starts
)
{
    int32_t opening = -1, found = 0;
    for (int32_t i = 0; i < n_starts; i++) starts[i] = 0;
    for (size_t i = n; i-- > 0 && found < n_starts;) {
        size_t length;
        bool is_control = ids[i] == opening;
        if (opening < 0) (void)weir_tokenizer_token_bytes(tokenizer, ids[i], &length, &is_control);
        if (!is_control) continue;
        opening = ids[i];
        starts[found++] = (int32_t)i;
    }
}

int32_t weir_turn_second(const weir_tokenizer *tokenizer, const int32_t *ids, size_t n)
{
    int32_t last, n_seen = 0;
    weir_turn_starts(tokenizer, ids, n, &last, 1);
    for (size_t i = 0; last > 0 && i < n; i++) {
        n_seen += ids[i] == ids[last];
        if (n_seen == 2) return (int32_t)i;
    }
    return 0;
}
