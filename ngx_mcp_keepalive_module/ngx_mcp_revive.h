
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A lost session is started again on the server's side while the request that
 * needs it waits.  The request's first answer, be it the server's or ours, is
 * swallowed by the filters; when the session lives, its content handler runs
 * once more.
 */


#ifndef _NGX_MCP_REVIVE_H_INCLUDED_
#define _NGX_MCP_REVIVE_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_call.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_revival.h"


/* Once a process. */
void ngx_mcp_revive_init_process(void);

/*
 * The answer that is about to be sent says that the session is lost.  True if
 * the request waits for its revival instead, once: nothing of the answer may
 * go out, until ctx->swallow is off again.
 */
ngx_uint_t ngx_mcp_revive_wait(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/*
 * The same before the request has an answer, or its body was read: its phases
 * go on when the session lives.  waits: not yet.
 */
ngx_uint_t ngx_mcp_revive_first(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);
ngx_uint_t ngx_mcp_revive_waits(ngx_mcp_ctx_t *ctx);

/*
 * Keeps what "initialize" asked for and begins to read the answer, fed by the
 * body filter; "last" ends it.
 */
void ngx_mcp_revive_watch(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_session_ref_t *ref);
void ngx_mcp_revive_feed(ngx_mcp_ctx_t *ctx, ngx_chain_t *in);


#endif /* _NGX_MCP_REVIVE_H_INCLUDED_ */
