
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_modern.h"


#define MODERN_FIRST   "2026-07-28"
#define MODERN_FORMAT  "0000-00-00"


static const struct {
    const char         *method;
    mcp_modern_kind_t   kind;
} mcp_modern_methods[] = {
    { "tools/list",           MCP_MODERN_PROMPT },
    { "server/discover",      MCP_MODERN_PROMPT },
    { "subscriptions/listen", MCP_MODERN_LISTEN },
    { "initialize",           MCP_MODERN_INITIALIZE }
};

static const char *const  mcp_modern_spoken[] = {
    "2026-07-28"
};


int
mcp_modern_is(const char *version, size_t len)
{
    size_t  i;

    if (len != sizeof(MODERN_FORMAT) - 1) {
        return 0;
    }

    for (i = 0; i < len; i++) {

        if (MODERN_FORMAT[i] == '0') {
            if (version[i] < '0' || version[i] > '9') {
                return 0;
            }

        } else if (version[i] != MODERN_FORMAT[i]) {
            return 0;
        }
    }

    /* dates of this form are in order as texts, too */

    return memcmp(version, MODERN_FIRST, len) >= 0;
}


mcp_modern_kind_t
mcp_modern_kind(const char *method, size_t len)
{
    size_t  i, n;

    n = sizeof(mcp_modern_methods) / sizeof(mcp_modern_methods[0]);

    for (i = 0; i < n; i++) {
        if (strlen(mcp_modern_methods[i].method) == len
            && memcmp(mcp_modern_methods[i].method, method, len) == 0)
        {
            return mcp_modern_methods[i].kind;
        }
    }

    return MCP_MODERN_OTHER;
}


int
mcp_modern_speaks(const char *version)
{
    size_t  i, n;

    n = sizeof(mcp_modern_spoken) / sizeof(mcp_modern_spoken[0]);

    for (i = 0; i < n; i++) {
        if (strcmp(mcp_modern_spoken[i], version) == 0) {
            return 1;
        }
    }

    return 0;
}
