
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The $mcp_* variables; docs/variables.md says what they hold.
 */


#ifndef _NGX_MCP_VARIABLE_H_INCLUDED_
#define _NGX_MCP_VARIABLE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* Adds them; in preconfiguration.  Without an mcp_keepalive they are empty. */
ngx_int_t ngx_mcp_variable_add(ngx_conf_t *cf);


#endif /* _NGX_MCP_VARIABLE_H_INCLUDED_ */
