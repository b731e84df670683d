/* tools/convert/blocks_grid.c - the blocks of IQ1, IQ2 and IQ3: where codes and scales are stored
 * (kernels/ref/levels.c reads them). */
#include <string.h>

#include "tools/convert/blocks.h"
#include "tools/convert/grid_block.h"

/* ---- IQ3 ------------------------------------------------------------------------------------- */
void weir_quantise_iq3_s(weir_block_iq3_s *out, const float *x, const float *w)
{
    static const grid_scheme iq3_s = {
        .dtype = WEIR_IQ3_S, .signs = SIGNS_FREE, .n_groups = 8, .most = 15, .unit = 1.0f
    };
    grid_block b;
    fit_grid_block(&b, x, w, &iq3_s);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    for (int j = 0; j < 8; j++)
        out->scales[j / 2] = (uint8_t)(out->scales[j / 2] | b.scales[j] << 4 * (j & 1));
    for (int n = 0; n < 32; n++) {
        const eight *const e = &b.eights[n];
        const int high = e->rows[0] >> 8 | (e->rows[1] >> 8) << 1;
        out->q[2 * n] = (uint8_t)e->rows[0];
        out->q[2 * n + 1] = (uint8_t)e->rows[1];
        out->qh[n / 4] = (uint8_t)(out->qh[n / 4] | high << 2 * (n % 4));
        out->signs[n] = e->signs;
    }
}

/* Seven signs of each eight, of which the eighth follows, and the scale of 32 elements. */
static void put_signs(uint16_t halves[2], const eight *eights, int scale)
{
    uint32_t word = (uint32_t)scale << 28;
    for (int n = 0; n < 4; n++) word |= (uint32_t)(eights[n].signs & 127) << 7 * n;
    halves[0] = (uint16_t)word;
    halves[1] = (uint16_t)(word >> 16);
}

void weir_quantise_iq3_xxs(weir_block_iq3_xxs *out, const float *x, const float *w)
{
    static const grid_scheme iq3_xxs = {
        .dtype = WEIR_IQ3_XXS, .signs = SIGNS_EVEN, .n_groups = 8, .most = 15, .unit = 0.25f
    };
    grid_block b;
    fit_grid_block(&b, x, w, &iq3_xxs);
    out->d = b.d;
    for (int j = 0; j < 8; j++) put_signs(out->signs + 2 * j, b.eights + 4 * j, b.scales[j]);
    for (int n = 0; n < 32; n++) {
        out->q[2 * n] = (uint8_t)b.eights[n].rows[0];
        out->q[2 * n + 1] = (uint8_t)b.eights[n].rows[1];
    }
}

/* ---- IQ2 ------------------------------------------------------------------------------------- */
static const float iq2_unit = 0.125f;

static void put_nibbles(uint8_t out[8], const int scales[16])
{
    for (int j = 0; j < 8; j++) out[j] = (uint8_t)(scales[2 * j] | scales[2 * j + 1] << 4);
}

void weir_quantise_iq2_s(weir_block_iq2_s *out, const float *x, const float *w)
{
    static const grid_scheme iq2_s = {
        .dtype = WEIR_IQ2_S, .signs = SIGNS_FREE, .n_groups = 16, .most = 15, .unit = iq2_unit
    };
    grid_block b;
    fit_grid_block(&b, x, w, &iq2_s);
    memset(out, 0, sizeof *out);
    out->d = b.d;
    put_nibbles(out->scales, b.scales);
    for (int n = 0; n < 32; n++) {
        const eight *const e = &b.eights[n];
        out->q[n] = (uint8_t)e->rows[0];
        out->qh[n / 4] = (uint8_t)(out->qh[n / 4] | (e->rows[0] >> 8) << 2 * (n % 4));
        out->signs[n] = e->signs;
    }
}

void weir_quantise_iq2_xs(weir_block_iq2_xs *out, const float *x, const float *w)
{
    static const grid_scheme iq2_xs = {
        .dtype = WEIR_IQ2_XS, .signs = SIGNS_EVEN, .n_groups = 16, .most = 15, .unit = iq2_unit
    };
    grid_block b;
    fit_grid_block(&b, x, w, &iq2_xs);
    out->d = b.d;
    put_nibbles(out->scales, b.scales);
    for (int n = 0; n < 32; n++)
        out->q[n] = (uint16_t)(b.eights[n].rows[0] | (b.eights[n].signs & 127) << 9);
}

void weir_quantise_iq2_xxs(weir_block_iq2_xxs *out, const float *x, const float *w)
{
    static const grid_scheme iq2_xxs = {
        .dtype = WEIR_IQ2_XXS, .signs = SIGNS_EVEN, .n_groups = 8, .most = 15, .unit = iq2_unit
    };
    grid_block b;
    fit_grid_block(&b, x, w, &iq2_xxs);
    out->d = b.d;
    for (int j = 0; j < 8; j++) {
        const eight *const e = b.eights + 4 * j;
        out->q[4 * j] = (uint16_t)(e[0].rows[0] | e[1].rows[0] << 8);
        out->q[4 * j + 1] = (uint16_t)(e[2].rows[0] | e[3].rows[0] << 8);
        put_signs(out->q + 4 * j + 2, e, b.scales[j]);
    }
}

/* ---- IQ1 ------------------------------------------------------------------------------------- */
static const float iq1_unit = 0.125f;

void weir_quantise_iq1_s(weir_block_iq1_s *out, const float *x, const float *w)
{
    static const grid_scheme iq1_s = { .dtype = WEIR_IQ1_S,
                                       .signs = SIGNS_IN_LEVELS,
                                       .delta = DELTA_OF_GROUP,
                                       .n_groups = 8,
                                       .most = 7,
                                       .unit = iq1_unit };
    grid_block b;
    fit_grid_block(&b, x, w, &iq1_s);
    out->d = b.d;
    for (int j = 0; j < 8; j++) {
        unsigned high = (unsigned)b.scales[j] << 12 | (unsigned)b.eights[4 * j].is_low << 15;
        for (int n = 0; n < 4; n++) {
            const unsigned row = b.eights[4 * j + n].rows[0];
            out->q[4 * j + n] = (uint8_t)row;
            high |= (row >> 8) << 3 * n;
        }
        out->qh[j] = (uint16_t)high;
    }
}

void weir_quantise_iq1_m(weir_block_iq1_m *out, const float *x, const float *w)
{
    static const grid_scheme iq1_m = { .dtype = WEIR_IQ1_M,
                                       .signs = SIGNS_IN_LEVELS,
                                       .delta = DELTA_OF_EIGHT,
                                       .n_groups = 16,
                                       .most = 7,
                                       .unit = iq1_unit };
    grid_block b;
    fit_grid_block(&b, x, w, &iq1_m);
    memset(out, 0, sizeof *out);
    for (int j = 0; j < 4; j++) out->scales[j] = (uint16_t)((b.d >> 4 * j & 15) << 12);
    for (int j = 0; j < 16; j++)
        out->scales[j / 4] = (uint16_t)(out->scales[j / 4] | b.scales[j] << 3 * (j % 4));
    for (int n = 0; n < 32; n++) {
        const int row = b.eights[n].rows[0], high = row >> 8 | b.eights[n].is_low << 3;
        out->q[n] = (uint8_t)row;
        out->qh[n / 2] = (uint8_t)(out->qh[n / 2] | high << 4 * (n % 2));
    }
}
