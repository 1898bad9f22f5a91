
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * One POST through a location without a client: a connection that is none, a
 * main request, and a background subrequest that takes the road of a client's
 * request (rewrites, balancer, pool, TLS) and no access check.
 */


#ifndef _NGX_MCP_CALL_H_INCLUDED_
#define _NGX_MCP_CALL_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_rpc.h"
#include "ngx_mcp_capture.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_stub.h"


typedef struct ngx_mcp_call_s  ngx_mcp_call_t;

/*
 * A piece of the answer's body.  NGX_DONE: the rest need not come; the answer
 * is given a moment to end by itself, so that its connection can be used
 * again.
 */
typedef ngx_int_t (*ngx_mcp_call_body_pt)(ngx_mcp_call_t *call, u_char *data,
    size_t len);

/* The answer's header, while the request lives. */
typedef void (*ngx_mcp_call_header_pt)(ngx_mcp_call_t *call,
    ngx_http_upstream_t *u);

/* The end, from the event loop: the call's memory is the caller's again. */
typedef void (*ngx_mcp_call_done_pt)(ngx_mcp_call_t *call);


struct ngx_mcp_call_s {

    /* the caller's; all texts must live until the end */

    ngx_mcp_srv_conf_t             *conf;
    ngx_mcp_stub_t                  stub;       /* what is asked, and where */
    ngx_str_t                       peer;       /* that must be asked; empty:
                                                 * the balancer's choice, and
                                                 * "rate" counts */
    ngx_msec_t                      timeout;    /* for the whole, in ms */
    ngx_mcp_call_header_pt          header_handler;
                                                /* or NULL */
    ngx_mcp_call_body_pt            body_handler;
    ngx_mcp_call_done_pt            done_handler;
    void                           *data;
    unsigned                        fresh:1;    /* on a new connection */
    unsigned                        wanted:1;   /* by a client's request: goes
                                                 * on in a worker that leaves */

    /* the answer's */

    ngx_mcp_outcome_t               outcome;
    mcp_media_t                     media;      /* of its body */
    off_t                           length;     /* Content-Length or -1 */
    time_t                          retry_after;
                                                /* in s, -1: none */
    ngx_uint_t                      status;     /* the server's, 0: none */
    ngx_mcp_capture_t               capture;    /* what went wrong first */
    unsigned                        header:1;   /* the header has come */
    unsigned                        encoded:1;
    unsigned                        redirected:1;
                                                /* to something of nginx's */
    unsigned                        complete:1; /* the end has come */
    unsigned                        answered:1; /* body_handler was content */
    unsigned                        timedout:1; /* our own time was up */
    unsigned                        cancelled:1;
                                                /* the worker is leaving */

    /* private */

    ngx_connection_t               *connection;
    ngx_http_request_t             *request;    /* the subrequest; NULL: over */
    ngx_mcp_ctx_t                  *ctx;
    ngx_queue_t                     queue;      /* of the calls in flight */
    ngx_event_t                     timer;
    ngx_event_t                     end;
};


/* Puts the filters in place; in postconfiguration.  NGX_ERROR: memory. */
ngx_int_t ngx_mcp_call_init(ngx_conf_t *cf);

/* Once a process. */
void ngx_mcp_call_init_process(void);

/*
 * True if there are so few free connections that clients should have them: a
 * call takes two.
 */
ngx_uint_t ngx_mcp_call_short(void);

/*
 * Starts a call.  NGX_OK: done_handler will be called, once, from the event
 * loop.  NGX_DECLINED: the endpoint is not in this configuration; NGX_ERROR: no
 * memory or no connection; done_handler will not be called.
 */
ngx_int_t ngx_mcp_call_start(ngx_mcp_call_t *call);

/* Ends all calls of this process that no client wants; not from a filter. */
void ngx_mcp_call_cancel_all(void);


#endif /* _NGX_MCP_CALL_H_INCLUDED_ */
