/* engine/serve/page.h - what the chat page may do, as its Content-Security-Policy. */
#pragma once

/* Script and style are files of this server: text that a model makes can never run as either. */
#define WEIR_PAGE_POLICY                                                                           \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
