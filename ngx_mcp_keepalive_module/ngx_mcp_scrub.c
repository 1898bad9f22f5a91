
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_scrub.h"


/* A cut secret shorter than this is told from no other word. */
#define NGX_MCP_SCRUB_CUT  4

/* Paths as short as "/mcp" are no secret. */
#define NGX_MCP_SCRUB_PATH  8

/* ... and an argument of two characters is no key. */
#define NGX_MCP_SCRUB_ARG  3

#define ngx_mcp_scrub_word(c)                                                 \
    (((c) >= '0' && (c) <= '9')                                               \
     || (((c) | 0x20) >= 'a' && ((c) | 0x20) <= 'z'))


void
ngx_mcp_scrub(char *text, u_char *secret, size_t len)
{
    size_t   n;
    u_char  *p, *last;

    if (len == 0) {
        return;
    }

    last = (u_char *) text + ngx_strlen(text);

    for (p = (u_char *) text; p < last; p++) {

        if (p > (u_char *) text && ngx_mcp_scrub_word(p[-1])
            && ngx_mcp_scrub_word(*secret))
        {
            continue;
        }

        n = ngx_min(len, (size_t) (last - p));

        if ((n < len && n < NGX_MCP_SCRUB_CUT)
            || ngx_strncmp(p, secret, n) != 0)
        {
            continue;
        }

        if (p + n < last && ngx_mcp_scrub_word(p[n])
            && ngx_mcp_scrub_word(secret[n - 1]))
        {
            continue;
        }

        ngx_memset(p, '*', n);
        p += n - 1;
    }
}


void
ngx_mcp_scrub_value(char *text, u_char *value, size_t len)
{
    u_char  *p, *last;

    last = value + len;

    ngx_mcp_scrub(text, value, len);

    p = ngx_strlchr(value, last, ' ');

    if (p && last - p > 1) {
        p++;
        ngx_mcp_scrub(text, p, last - p);
    }
}


void
ngx_mcp_scrub_uri(char *text, u_char *uri, size_t len)
{
    u_char  *args, *p, *end, *last;

    last = uri + len;

    args = ngx_strlchr(uri, last, '?');

    ngx_mcp_scrub(text, uri, args ? len : 0);

    end = args ? args : last;

    if (end - uri >= NGX_MCP_SCRUB_PATH) {
        ngx_mcp_scrub(text, uri, end - uri);
    }

    if (args == NULL) {
        return;
    }

    args++;
    ngx_mcp_scrub(text, args, last - args);

    for ( /* void */ ; args < last; args = end + 1) {

        end = ngx_strlchr(args, last, '&');
        end = end ? end : last;

        p = ngx_strlchr(args, end, '=');
        p = p ? p + 1 : args;

        if (end - p >= NGX_MCP_SCRUB_ARG) {
            ngx_mcp_scrub(text, p, end - p);
        }
    }
}
