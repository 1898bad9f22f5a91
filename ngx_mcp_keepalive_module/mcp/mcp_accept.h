
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Which of the status page's formats an Accept header asks for.  Pure.
 */


#ifndef _MCP_ACCEPT_H_INCLUDED_
#define _MCP_ACCEPT_H_INCLUDED_


#include <stddef.h>


typedef enum {
    MCP_FORMAT_JSON = 0,
    MCP_FORMAT_PROMETHEUS,
    MCP_FORMAT_HTML
} mcp_format_t;


/*
 * The format of the media type with the highest weight (RFC 9110, 12.5.1), the
 * first of equals; types with a wildcard and unknown ones do not count, and
 * with none left it is JSON.  "value" may be NULL.
 */
mcp_format_t mcp_accept(const char *value, size_t len);


#endif /* _MCP_ACCEPT_H_INCLUDED_ */
