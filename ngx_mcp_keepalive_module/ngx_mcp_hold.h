
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * A client's GET whose server is away: it is held by an event stream of our own
 * until the server is back.  A client that is told of an outage twice within a
 * few seconds gives its stream up for good.
 */


#ifndef _NGX_MCP_HOLD_H_INCLUDED_
#define _NGX_MCP_HOLD_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_conf.h"


/*
 * Answers a client's GET, whose own answer would be a 503, with an event stream
 * that ends when "peer" is connected again.  Called in a PRECONTENT handler,
 * which then returns NGX_DONE; or where the upstream's peers are initialized,
 * which then returns NGX_ERROR.  NGX_DONE: it is held; NGX_DECLINED: it cannot
 * be, or is not to be; NGX_ERROR: no memory, or the client is gone.
 */
ngx_int_t ngx_mcp_hold_start(ngx_http_request_t *r, ngx_mcp_srv_conf_t *conf,
    ngx_str_t *peer);

/*
 * For the tick: ends what is held for a peer that is connected again, spread
 * over "drain"; in a worker that leaves, all of it.
 */
void ngx_mcp_hold_tick(void);

/* Once a process. */
void ngx_mcp_hold_init_process(void);


#endif /* _NGX_MCP_HOLD_H_INCLUDED_ */
