/* engine/serve/page.h - the Content-Security-Policy of the chat page. */
#pragma once

/* Scripts and styles are files of this server, so text from a model can never run as either. */
#define WEIR_PAGE_POLICY                                                                           \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "                \
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
