
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * The one word for what became of a client's request.
 */


#ifndef _NGX_MCP_VERDICT_H_INCLUDED_
#define _NGX_MCP_VERDICT_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_classify.h"
#include "ngx_mcp_request.h"


/*
 * Judges the answer, by its header and by its body if that was looked into, or
 * the lack of one.  MCP_VERDICT_N: there is nothing to judge (not MCP, a
 * keepalive, a client that left), or not yet.
 */
mcp_verdict_t ngx_mcp_verdict(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/* NULL: the request was redirected, and another upstream has it now. */
ngx_http_upstream_t *ngx_mcp_verdict_upstream(ngx_http_request_t *r,
    ngx_mcp_ctx_t *ctx);


#endif /* _NGX_MCP_VERDICT_H_INCLUDED_ */
