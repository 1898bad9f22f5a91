
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * Takes what is secret out of a text that others wrote.
 */


#ifndef _NGX_MCP_SCRUB_H_INCLUDED_
#define _NGX_MCP_SCRUB_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>


/*
 * Overwrites with '*' whatever in the NUL-ended "text" is the secret, as a
 * word of its own, or the beginning of it where the text was cut.
 */
void ngx_mcp_scrub(char *text, u_char *secret, size_t len);

/* The same for a header's value: the whole, and what follows its scheme. */
void ngx_mcp_scrub_value(char *text, u_char *value, size_t len);

/* The same for a URI: the path, the arguments, and each argument's value. */
void ngx_mcp_scrub_uri(char *text, u_char *uri, size_t len);


#endif /* _NGX_MCP_SCRUB_H_INCLUDED_ */
