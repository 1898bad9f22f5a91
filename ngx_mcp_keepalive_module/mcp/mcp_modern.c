
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <string.h>

#include "mcp_modern.h"


#define MODERN_FIRST   "2026-07-28"
#define MODERN_FORMAT  "0000-00-00"


static int mcp_modern_one_of(const char *const *names, const char *name,
    size_t len);


/* newest first */

static const char *const  mcp_modern_spoken[] = {
    "2026-07-28",
    NULL
};

static const char *const  mcp_modern_prompt[] = {
    "tools/list",
    "server/discover",
    NULL
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


int
mcp_modern_is_prompt(const char *method, size_t len)
{
    return mcp_modern_one_of(mcp_modern_prompt, method, len);
}


int
mcp_modern_speaks(const char *version)
{
    return mcp_modern_one_of(mcp_modern_spoken, version, strlen(version));
}


static int
mcp_modern_one_of(const char *const *names, const char *name, size_t len)
{
    for ( /* void */ ; *names != NULL; names++) {
        if (strlen(*names) == len && memcmp(*names, name, len) == 0) {
            return 1;
        }
    }

    return 0;
}
