
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_accept.h"


static size_t mcp_accept_cut(const char *value, size_t len, int c);
static void mcp_accept_trim(const char **value, size_t *len);
static int mcp_accept_is(const char *value, size_t len, const char *text);
static int mcp_accept_weight(const char *value, size_t len);


static const struct {
    const char         *type;
    mcp_format_t        format;
} mcp_accept_types[] = {
    { "application/json",             MCP_FORMAT_JSON },
    { "text/html",                    MCP_FORMAT_HTML },
    { "application/xhtml+xml",        MCP_FORMAT_HTML },
    { "text/plain",                   MCP_FORMAT_PROMETHEUS },
    { "application/openmetrics-text", MCP_FORMAT_PROMETHEUS },
    { NULL,                           MCP_FORMAT_JSON }
};


mcp_format_t
mcp_accept(const char *value, size_t len)
{
    int            best, weight;
    size_t         i, n, name;
    const char    *type;
    mcp_format_t   format;

    best = 0;
    format = MCP_FORMAT_JSON;

    while (len != 0) {

        n = mcp_accept_cut(value, len, ',');

        type = value;
        name = mcp_accept_cut(value, n, ';');
        weight = mcp_accept_weight(value + name, n - name);

        mcp_accept_trim(&type, &name);

        for (i = 0; mcp_accept_types[i].type != NULL; i++) {

            if (weight > best
                && mcp_accept_is(type, name, mcp_accept_types[i].type))
            {
                best = weight;
                format = mcp_accept_types[i].format;
            }
        }

        /* the comma, too */

        n += (n < len);
        value += n;
        len -= n;
    }

    return format;
}


/* How many bytes stand before the first "c", or all. */

static size_t
mcp_accept_cut(const char *value, size_t len, int c)
{
    const char  *p;

    p = (len == 0) ? NULL : memchr(value, c, len);

    return (p == NULL) ? len : (size_t) (p - value);
}


static void
mcp_accept_trim(const char **value, size_t *len)
{
    while (*len != 0 && (**value == ' ' || **value == '\t')) {
        (*value)++;
        (*len)--;
    }

    while (*len != 0
           && ((*value)[*len - 1] == ' ' || (*value)[*len - 1] == '\t'))
    {
        (*len)--;
    }
}


static int
mcp_accept_is(const char *value, size_t len, const char *text)
{
    int     c;
    size_t  i;

    if (len != strlen(text)) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        c = value[i];
        c = (c >= 'A' && c <= 'Z') ? c | 0x20 : c;

        if (c != text[i]) {
            return 0;
        }
    }

    return 1;
}


/* Of ";a=b;q=0.5" in thousandths; without a "q", or with a bad one, 1000. */

static int
mcp_accept_weight(const char *value, size_t len)
{
    int          weight, unit;
    size_t       n, i;
    const char  *p;

    while (len > 1) {

        /* value points to a semicolon */

        value++;
        len--;

        p = value;
        n = mcp_accept_cut(value, len, ';');

        value += n;
        len -= n;

        mcp_accept_trim(&p, &n);

        if (n < 3 || !mcp_accept_is(p, 2, "q=")) {
            continue;
        }

        weight = 0;
        unit = 1000;

        for (i = 2; i < n; i++) {

            if (p[i] == '.' && i == 3) {
                continue;
            }

            if (p[i] < '0' || p[i] > '9' || i > 6) {
                return 1000;
            }

            weight += (p[i] - '0') * unit;
            unit /= 10;
        }

        return (weight > 1000) ? 1000 : weight;
    }

    return 1000;
}
