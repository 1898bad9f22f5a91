
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


/*
 * True if "version", the value of MCP-Protocol-Version, is a date from
 * 2026-07-28 on.  No date is a legacy version.
 */
int mcp_modern_is(const char *version, size_t len);

/*
 * True if no tool is behind "method", the value of Mcp-Method, so that its
 * answer cannot be long in coming.
 */
int mcp_modern_is_prompt(const char *method, size_t len);

/* True if keepalives can be sent in this modern version; NUL-ended. */
int mcp_modern_speaks(const char *version);


#endif /* _MCP_MODERN_H_INCLUDED_ */
