
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The answers the module gives in nginx's or the server's place.
 */


#ifndef _NGX_MCP_ANSWER_H_INCLUDED_
#define _NGX_MCP_ANSWER_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_request.h"


/*
 * Makes the answer whose header is about to be sent the one in ctx->answer: a
 * status with a JSON-RPC error.  What the server said of its own entity is
 * dropped, its other headers stay.  NGX_ERROR: no memory.
 */
ngx_int_t ngx_mcp_answer_header(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/* The body to it; NULL: no memory. */
ngx_chain_t *ngx_mcp_answer_body(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);


#endif /* _NGX_MCP_ANSWER_H_INCLUDED_ */
