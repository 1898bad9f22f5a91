
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "mcp_phrases.h"
#include "mcp_text.h"


typedef struct {
    const char *const  *phrases;
    unsigned            flag;
} mcp_family_t;


/* lower case, as mcp_text_find() reads them */

static const char *const  mcp_phrases_lost[] = {
    "session*not found",
    "session*expired",
    "session*terminated",
    "session*unknown",
    "session*invalid ",
    "session*not valid",
    "session*no longer valid",
    "session*no longer exists",
    "session*not exist",
    "session*doesn't exist",
    "session*closed",
    "session*not recogni",
    "unknown session",
    "unknown mcp session",
    "unknown or expired session",
    "expired session",
    "expired mcp session",
    "invalid session",
    "invalid mcp session",
    "invalid or expired session",
    "invalid or missing session",
    "missing or invalid session",
    "missing or invalid mcp session",
    "no valid session",
    "no such session",
    "no active session",
    "no session found",
    "no session with id",
    NULL
};

static const char *const  mcp_phrases_not_initialized[] = {
    "not initialized",
    "not been initialized",
    "not yet initialized",
    "not initialised",
    "before initialization",
    "uninitialized",
    NULL
};

static const char *const  mcp_phrases_exists[] = {
    "already exist",
    "already initialized",
    "already connected",
    "already in use",
    "already open",
    "only one sse stream",
    " duplicate",
    NULL
};

static const char *const  mcp_phrases_route[] = {
    " host ",
    " origin ",
    " header",
    " version",
    "dns rebinding",
    NULL
};

static const char *const  mcp_phrases_no_method[] = {
    "method not found",
    "method not supported",
    "method not implemented",
    "unknown method",
    "unsupported method",
    "not found: ping",
    "not support tools",
    NULL
};

static const char *const  mcp_phrases_session[] = {
    "session",
    NULL
};


static const mcp_family_t  mcp_phrases[] = {
    { mcp_phrases_lost,             T_LOST     },
    { mcp_phrases_not_initialized,  T_NOTINIT  },
    { mcp_phrases_exists,           T_EXISTS   },
    { mcp_phrases_route,            T_ROUTE    },
    { mcp_phrases_session,          T_SESSION  },
    { mcp_phrases_no_method,        T_NOMETHOD },
    { NULL,                         0          }
};


unsigned
mcp_phrases_find(const char *text, size_t len)
{
    unsigned             found;
    const mcp_family_t  *t;

    found = 0;

    for (t = mcp_phrases; t->phrases != NULL; t++) {
        if (mcp_text_find_any(text, len, t->phrases)) {
            found |= t->flag;
        }
    }

    return found;
}
