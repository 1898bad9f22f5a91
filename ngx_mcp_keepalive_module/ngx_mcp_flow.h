
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * One event stream in motion: followed byte by byte, kept open by heartbeats,
 * ended by time, by us, by either side.
 */


#ifndef _NGX_MCP_FLOW_H_INCLUDED_
#define _NGX_MCP_FLOW_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_sse.h"
#include "ngx_mcp_relay.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_tally.h"


/*
 * Lives as long as the pool of its request, but outside of it: of that an idle
 * stream has filled a block already, and the next takes 4 KiB.
 */

typedef struct {

    /* set by the one who makes it; times in ms */

    ngx_msec_t                      heartbeat;  /* 0: none */
    ngx_msec_t                      timeout;    /* of the server's silence */
    unsigned                        notify:1;   /* not the answer to a call */
    unsigned                        listen:1;   /* ... but to a modern POST */
    unsigned                        opaque:1;   /* nothing can be put in */
    unsigned                        changed:1;  /* the client is to be told that
                                                 * the tools may be others */

    /* private */

    unsigned                        begun:1;    /* a byte was sent */
    unsigned                        ending:1;   /* "end" is set */
    unsigned                        stopped:1;  /* no more is read */
    unsigned                        last:1;     /* the end has been sent */
    unsigned                        decided:1;  /* "reason" is set */

    ngx_event_t                     event;  /* timer; and posted to come after
                                             * what nginx does */
    ngx_queue_t                     queue;  /* of its tally */
    ngx_http_request_t             *request;
    ngx_http_upstream_t            *upstream;   /* its own, of maybe several */
    ngx_mcp_srv_conf_t             *conf;
    ngx_mcp_tally_t                *tally;
    ngx_http_output_body_filter_pt  filter; /* the way to the client */
    ngx_mcp_relay_handler_pt        read;   /* nginx's own handlers */
    ngx_http_event_handler_pt       write;
    ngx_atomic_uint_t               number; /* of the upstream connection */
    ngx_msec_t                      start;
    ngx_msec_t                      heard;  /* of the server, last */
    ngx_msec_t                      sent;   /* to the client, last */
    ngx_msec_t                      end;    /* when it is to be ended */
    ngx_msec_t                      retry;
    ngx_mcp_end_t                   reason; /* how it ended */
    ngx_mcp_end_t                   why;    /* ... is to end */
    ngx_buf_t                       buf;    /* of the heartbeat */
    mcp_sse_t                       sse;
} ngx_mcp_flow_t;


/*
 * Makes the flow of an answer whose header is about to be sent, counts it, and
 * puts it into ctx->events.  What is put in goes to "filter".  NULL: memory.
 */
ngx_mcp_flow_t *ngx_mcp_flow_create(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_tally_t *tally, ngx_http_output_body_filter_pt filter);

/*
 * True if the client has left, but its call goes on, as is configured: then
 * nobody is to be handed "in", which is dropped.
 */
ngx_uint_t ngx_mcp_flow_unheard(ngx_mcp_flow_t *f, ngx_chain_t *in);

/*
 * In the body filter, before and after "in" is handed on, with "rc" for a
 * result; returns that of the filter.
 */
void ngx_mcp_flow_pass(ngx_mcp_flow_t *f, ngx_chain_t *in);
ngx_int_t ngx_mcp_flow_passed(ngx_mcp_flow_t *f, ngx_chain_t *in,
    ngx_int_t rc);

/*
 * A notification stream is to end for "why", at a random time within "drain".
 * Any other one, and one that ends already, is left alone.
 */
void ngx_mcp_flow_end(ngx_mcp_flow_t *f, ngx_mcp_end_t why);


#endif /* _NGX_MCP_FLOW_H_INCLUDED_ */
