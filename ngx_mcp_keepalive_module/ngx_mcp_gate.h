
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What has to wait before the body of a request is read: a request whose body
 * is not buffered cannot begin anew, so the revival of its session comes first.
 */


#ifndef _NGX_MCP_GATE_H_INCLUDED_
#define _NGX_MCP_GATE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


/* Puts the handler in its phase; in postconfiguration.  NGX_ERROR: memory. */
ngx_int_t ngx_mcp_gate_init(ngx_conf_t *cf);


#endif /* _NGX_MCP_GATE_H_INCLUDED_ */
