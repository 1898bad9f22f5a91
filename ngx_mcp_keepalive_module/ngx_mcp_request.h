
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 *
 * What the module knows of one request through an mcp_keepalive upstream, be it
 * a client's or one of its own.
 */


#ifndef _NGX_MCP_REQUEST_H_INCLUDED_
#define _NGX_MCP_REQUEST_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_classify.h"
#include "mcp/mcp_rpc.h"
#include "mcp/mcp_start.h"
#include "ngx_mcp_capture.h"
#include "ngx_mcp_conf.h"
#include "ngx_mcp_header.h"
#include "ngx_mcp_session.h"


/* How a request of our own fared at its peer; written by the peer hooks. */

typedef struct {
    mcp_stage_t                     stage;
    ngx_uint_t                      status; /* nginx's for no answer */
    uint32_t                        peer;   /* slot, and its epoch then */
    uint32_t                        epoch;
    size_t                          name_len;
    u_char                          name[NGX_MCP_PEER_NAME_MAX];
                                            /* of the peer given */
    unsigned                        limited:1;
                                            /* "rate" was used up there */
    unsigned                        contacted:1;
                                            /* a peer was given */
    unsigned                        pooled:1;
    unsigned                        timedout:1;
    unsigned                        done:1; /* the hooks saw the end */
} ngx_mcp_outcome_t;


/* What is said of a peer until it answers. */

typedef struct {
    ngx_log_t                      *head;   /* listened to, "log" in its
                                             * place; NULL: no more */
    ngx_log_t                       log;
    ngx_mcp_capture_t               capture;
} ngx_mcp_ear_t;


/* The peer a client's request is with, or was with last. */

typedef struct {
    uint32_t                        peer;   /* slot */
    uint32_t                        epoch;  /* of the peer, then */
    ngx_mcp_ear_t                  *ear;    /* or NULL */
    unsigned                        begun:1;
    unsigned                        pooled:1;
    unsigned                        attempt:1;
                                            /* a marked one: is it back? */
} ngx_mcp_contact_t;


/* What we answer in the server's place. */

typedef enum {
    NGX_MCP_ANSWER_NONE = 0,
    NGX_MCP_ANSWER_LOST,                    /* 404, "Session not found" */
    NGX_MCP_ANSWER_UNAVAILABLE              /* 503 and Retry-After */
} ngx_mcp_answer_t;


typedef struct ngx_mcp_revive_s  ngx_mcp_revive_t;


/* For as long as a stream is open there is one: it is to be small. */

typedef struct {
    ngx_http_request_t             *request;
    ngx_mcp_srv_conf_t             *conf;
    ngx_queue_t                     queue;  /* of those with a lease */
    ngx_str_t                       id;     /* sent and tracked; else empty */
    ngx_table_elt_t                *version;    /* the client's, if one */
    ngx_str_t                       pin;    /* the peer it must go to */
    ngx_msec_t                      start;
    ngx_msec_t                      renewed;    /* its lease, last */
    ngx_mcp_session_pin_t           session;

    void                           *call;   /* ngx_mcp_call_t, if our own */
    void                           *events; /* ngx_mcp_flow_t, of an answer
                                             * that is an event stream */

    mcp_rpc_reader_t               *reader; /* of an answer too long to hold */
    ngx_buf_t                      *held;   /* body of an answer that is held
                                             * until it is judged */
    ngx_int_t                     (*process_header)(ngx_http_request_t *r);
    ngx_int_t                     (*reinit_request)(ngx_http_request_t *r);
                                            /* of the upstream, replaced */
    u_char                         *chunks; /* of an answer, put together */
    void                          **loc_conf;
                                            /* of the request, while it has
                                             * another */
    ngx_mcp_outcome_t              *outcome;    /* of "call" */
    ngx_mcp_contact_t               contact;    /* of a client's request */
    ngx_event_t                    *silent; /* no answer in time; if "prompt" */
    ngx_mcp_answer_t                answer;
    mcp_verdict_t                   verdict;    /* if "judged" */
    ngx_mcp_revive_t               *revive; /* it waited for one, or does */
    ngx_str_t                       alias;  /* the server's id, if another */
    ngx_str_t                       params; /* of its "initialize" */
    mcp_start_reader_t             *start_reader;
                                            /* of the answer to that */
    ngx_mcp_session_ref_t           learned;
    uintptr_t                       steered;
                                            /* peers left out of the last */
    ngx_str_t                       choice; /* the peer for the next try */

    unsigned                        known:1;    /* session is set */
    unsigned                        initialize:1;
    unsigned                        message:1;  /* JSON-RPC, but no
                                                 * "initialize" */
    unsigned                        modern:1;   /* of a revision without
                                                 * sessions */
    unsigned                        listen:1;   /* ... for notifications */
    unsigned                        unread:1;   /* a POST whose body cannot be
                                                 * told */
    unsigned                        mcp:1;      /* for all that is known */
    unsigned                        prompt:1;   /* to be answered in time */
    unsigned                        untracked:1;
    unsigned                        busy:1;     /* holds a request lease */
    unsigned                        stream:1;   /* holds a stream lease */
    unsigned                        fresh:1;    /* no pooled connection */
    unsigned                        parsed:1;   /* the header that waits for
                                                 * its body to be judged */
    unsigned                        lost:1;     /* the session is, says the
                                                 * server */
    unsigned                        judged:1;   /* the answer, by its body */
    unsigned                        replaced:1; /* the answer is ours now */
    unsigned                        unrun:1;    /* the server cannot have
                                                 * begun to do it */
    unsigned                        swallow:1;  /* nothing is sent for now */
    unsigned                        keepalive:1;
    unsigned                        error_page:1;
                                                /* of the client's request,
                                                 * before */
} ngx_mcp_ctx_t;


/* The context of a request, of the main one if it is our own; or NULL. */
ngx_mcp_ctx_t *ngx_mcp_request_ctx(ngx_http_request_t *r);

/*
 * The same, and after an internal redirect, which takes it from the request,
 * the last one it had: for what tells of the request at its end.
 */
ngx_mcp_ctx_t *ngx_mcp_request_trace(ngx_http_request_t *r);

/*
 * A client's request reaches the upstream: makes its context, finds its session
 * and its peer; a POST or DELETE of a client takes a lease.  NGX_ERROR: no
 * memory.
 */
ngx_int_t ngx_mcp_request_start(ngx_http_request_t *r,
    ngx_mcp_srv_conf_t *conf);

/* The digest of the owner a request speaks for; NGX_ERROR: no memory. */
ngx_int_t ngx_mcp_request_owner(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    u_char *owner);

/* An open notification stream: takes a stream lease. */
void ngx_mcp_request_stream(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx);

/*
 * Describes the client of a request for the session table; NGX_ERROR: memory.
 */
ngx_int_t ngx_mcp_request_client(ngx_http_request_t *r, ngx_mcp_ctx_t *ctx,
    ngx_mcp_client_t *client);

/*
 * Gives a request its location without error pages; one of our own without
 * post_action and an access log for subrequests, too.  NGX_ERROR: no memory.
 * The copy goes with the request, which nginx reads it after: a client's must
 * get back what it had.
 */
ngx_int_t ngx_mcp_request_no_error_pages(ngx_http_request_t *r);
ngx_int_t ngx_mcp_request_quiet(ngx_http_request_t *r);

/* Renews the leases that this worker's requests hold; for the tick. */
void ngx_mcp_request_renew(void);

/* Once a process. */
void ngx_mcp_request_init_process(void);


#endif /* _NGX_MCP_REQUEST_H_INCLUDED_ */
