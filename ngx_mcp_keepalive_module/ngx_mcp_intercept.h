
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * With proxy_intercept_errors a server's error is dropped before any filter can
 * see it.  One that tells of a lost session is judged before that, and spared.
 */


#ifndef _NGX_MCP_INTERCEPT_H_INCLUDED_
#define _NGX_MCP_INTERCEPT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_request.h"


/* Watches the headers of a client's request that is about to go upstream. */
void ngx_mcp_intercept_init(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);


#endif /* _NGX_MCP_INTERCEPT_H_INCLUDED_ */
