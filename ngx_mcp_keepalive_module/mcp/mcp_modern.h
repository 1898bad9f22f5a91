
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What sets the revisions without sessions (2026-07-28 and later, "modern")
 * apart.  Pure.
 */


#ifndef _MCP_MODERN_H_INCLUDED_
#define _MCP_MODERN_H_INCLUDED_


#include <stddef.h>


#define MCP_MODERN_VERSION_MAX  12      /* of a version kept, with a NUL */


/* What a method is to us. */

typedef enum {
    MCP_MODERN_OTHER = 0,
    MCP_MODERN_INITIALIZE,      /* starts a session: it is not modern at all */
    MCP_MODERN_PROMPT,          /* no tool is behind it, so that its answer
                                 * cannot be long in coming */
    MCP_MODERN_LISTEN           /* is answered by a notification stream */
} mcp_modern_kind_t;


/*
 * True if "version", the value of MCP-Protocol-Version, is a date from
 * 2026-07-28 on.  No date is a legacy version.
 */
int mcp_modern_is(const char *version, size_t len);

/* The kind of "method", the value of Mcp-Method. */
mcp_modern_kind_t mcp_modern_kind(const char *method, size_t len);

/* True if keepalives can be sent in this modern version; NUL-ended. */
int mcp_modern_speaks(const char *version);


#endif /* _MCP_MODERN_H_INCLUDED_ */
