
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A revived session has two names: its client goes on with the one it was
 * given, the server knows another one.
 */


#ifndef _NGX_MCP_ALIAS_H_INCLUDED_
#define _NGX_MCP_ALIAS_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_request.h"


/* In postconfiguration; NGX_ERROR: no memory. */
ngx_int_t ngx_mcp_alias_init(ngx_conf_t *cf);

/*
 * The request goes out with the server's id, and without a Last-Event-ID of a
 * life before: what "proxy" has made of it is made anew.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_mcp_alias_request(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/* The client gets its own id back. */
void ngx_mcp_alias_response(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);


#endif /* _NGX_MCP_ALIAS_H_INCLUDED_ */
