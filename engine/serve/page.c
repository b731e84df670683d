/* engine/serve/page.c - the chat page: its files, as bytes. They need no key; the page's own
 * requests do. */
#include <stdio.h>
#include <string.h>

#include "engine/serve/internal.h"

static const struct file {
    const char *name;
    const unsigned char *data;
    size_t size;
} files[] = {
#include "engine/serve/page_files.inc"
};

/* The file is named as the last part of the path, its type by the route. */
void weir_page_get(weir_exchange *x)
{
    const weir_route *const route = x->route;
    const char *name = strrchr(route->path, '/') + 1;
    if (name[0] == 0) name = "index.html";
    const char *const type = strcmp(route->produces, "text/css") == 0 ? "text/css; charset=utf-8"
                             : strcmp(route->produces, "text/html") == 0
                                 ? "text/html; charset=utf-8"
                                 : "text/javascript; charset=utf-8";
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(files[i].name, name) == 0) {
            weir_reply_text(x, type, files[i].data, files[i].size);
            return;
        }
    weir_reply_status(x, WEIR_EIO);
}
