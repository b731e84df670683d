/* engine/serve/page.h - the policy that the chat page is served with. */
#pragma once

#define WEIR_PAGE_POLICY \
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; " \
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
