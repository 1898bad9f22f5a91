
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_call.h"


/* How long an answered call may take to end by itself, in ms. */
#define NGX_MCP_CALL_GRACE    100

/* Below this share of all connections, the free ones are the clients'. */
#define NGX_MCP_CALL_SHARE    8


static ngx_connection_t *ngx_mcp_call_connection(ngx_mcp_call_t *call,
    ngx_listening_t *ls);
static ngx_int_t ngx_mcp_call_addresses(ngx_connection_t *c,
    ngx_listening_t *ls);
static ngx_int_t ngx_mcp_call_request(ngx_mcp_call_t *call,
    ngx_http_request_t *r, ngx_http_addr_conf_t *addr);
static ngx_int_t ngx_mcp_call_headers(ngx_mcp_call_t *call,
    ngx_http_request_t *r);
static ngx_table_elt_t *ngx_mcp_call_add_header(ngx_http_request_t *r,
    ngx_str_t *key, ngx_str_t *value);
static ngx_int_t ngx_mcp_call_body(ngx_mcp_call_t *call,
    ngx_http_request_t *r);
static ngx_int_t ngx_mcp_call_context(ngx_mcp_call_t *call,
    ngx_http_request_t *r);
static ngx_int_t ngx_mcp_call_run(ngx_mcp_call_t *call,
    ngx_http_request_t *r);
static void ngx_mcp_call_cancel(ngx_mcp_call_t *call);
static ngx_int_t ngx_mcp_call_subrequest_done(ngx_http_request_t *r,
    void *data, ngx_int_t rc);
static void ngx_mcp_call_cleanup(void *data);
static void ngx_mcp_call_timer(ngx_event_t *ev);
static void ngx_mcp_call_end(ngx_event_t *ev);
static void ngx_mcp_call_event(ngx_event_t *ev);
static ssize_t ngx_mcp_call_recv(ngx_connection_t *c, u_char *buf,
    size_t size);
static ssize_t ngx_mcp_call_send(ngx_connection_t *c, u_char *buf,
    size_t size);
static ngx_chain_t *ngx_mcp_call_send_chain(ngx_connection_t *c,
    ngx_chain_t *in, off_t limit);
static ngx_int_t ngx_mcp_call_precontent(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_call_header_filter(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_call_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static void ngx_mcp_call_answer(ngx_mcp_call_t *call, ngx_http_upstream_t *u);
static time_t ngx_mcp_call_retry_after(ngx_http_upstream_t *u);


static ngx_http_output_header_filter_pt  ngx_mcp_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_mcp_next_body_filter;

static ngx_socket_t  ngx_mcp_call_fd = (ngx_socket_t) -1;
static ngx_queue_t   ngx_mcp_calls;


ngx_int_t
ngx_mcp_call_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    ngx_mcp_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_mcp_call_header_filter;

    ngx_mcp_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_mcp_call_body_filter;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_mcp_call_precontent;

    return NGX_OK;
}


ngx_int_t
ngx_mcp_call_init_process(ngx_cycle_t *cycle)
{
    ngx_queue_init(&ngx_mcp_calls);

    ngx_mcp_call_fd = ngx_socket(AF_UNIX, SOCK_STREAM, 0);

    if (ngx_mcp_call_fd == (ngx_socket_t) -1) {
        ngx_log_error(NGX_LOG_CRIT, cycle->log, ngx_socket_errno,
                      ngx_socket_n " for mcp keepalives failed");
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_mcp_call_exit_process(void)
{
    if (ngx_mcp_call_fd != (ngx_socket_t) -1) {
        (void) ngx_close_socket(ngx_mcp_call_fd);
        ngx_mcp_call_fd = (ngx_socket_t) -1;
    }
}


ngx_uint_t
ngx_mcp_call_short(void)
{
    return ngx_cycle->free_connection_n
           < ngx_max(ngx_cycle->connection_n / NGX_MCP_CALL_SHARE, 2);
}


ngx_int_t
ngx_mcp_call_start(ngx_mcp_call_t *call)
{
    ngx_listening_t       *ls;
    ngx_connection_t      *c;
    ngx_http_request_t    *r;
    ngx_http_addr_conf_t  *addr;

    addr = ngx_mcp_endpoint_address(call->endpoint, &ls);
    if (addr == NULL) {
        return NGX_DECLINED;
    }

    c = ngx_mcp_call_connection(call, ls);
    if (c == NULL) {
        return NGX_ERROR;
    }

    call->connection = c;
    call->length = -1;
    call->retry_after = -1;

    ((ngx_http_connection_t *) c->data)->addr_conf = addr;
    ((ngx_http_connection_t *) c->data)->conf_ctx = addr->default_server->ctx;

    r = ngx_http_create_request(c);
    if (r == NULL) {
        ngx_http_close_connection(c);
        return NGX_ERROR;
    }

    c->data = r;
    r->logged = 1;

    if (ngx_mcp_call_request(call, r, addr) != NGX_OK
        || ngx_mcp_call_run(call, r) != NGX_OK)
    {
        ngx_http_free_request(r, 0);
        ngx_http_close_connection(c);
        return NGX_ERROR;
    }

    ngx_http_run_posted_requests(c);

    return NGX_OK;
}


void
ngx_mcp_call_cancel_all(void)
{
    ngx_queue_t     *q, *next;
    ngx_mcp_call_t  *call;

    for (q = ngx_queue_head(&ngx_mcp_calls);
         q != ngx_queue_sentinel(&ngx_mcp_calls);
         q = next)
    {
        next = ngx_queue_next(q);
        call = ngx_queue_data(q, ngx_mcp_call_t, queue);

        call->cancelled = 1;
        ngx_mcp_call_cancel(call);
    }
}


/*
 * A connection to nobody.  "shared" keeps the core from touching the
 * descriptor, so that each of its ways out is open to the request.
 */

static ngx_connection_t *
ngx_mcp_call_connection(ngx_mcp_call_t *call, ngx_listening_t *ls)
{
    ngx_log_t              *log;
    ngx_connection_t       *c;
    ngx_http_log_ctx_t     *ctx;
    ngx_http_connection_t  *hc;

    c = ngx_get_connection(ngx_mcp_call_fd, ngx_cycle->log);
    if (c == NULL) {
        return NULL;
    }

    c->shared = 1;

    c->pool = ngx_create_pool(1024, ngx_cycle->log);
    if (c->pool == NULL) {
        ngx_close_connection(c);
        return NULL;
    }

#if (NGX_STAT_STUB)
    (void) ngx_atomic_fetch_add(ngx_stat_active, 1);
#endif

    log = ngx_palloc(c->pool, sizeof(ngx_log_t));
    ctx = ngx_pcalloc(c->pool, sizeof(ngx_http_log_ctx_t));
    hc = ngx_pcalloc(c->pool, sizeof(ngx_http_connection_t));

    c->buffer = ngx_create_temp_buf(c->pool, 1);

    if (log == NULL || ctx == NULL || hc == NULL || c->buffer == NULL
        || ngx_mcp_call_addresses(c, ls) != NGX_OK)
    {
        ngx_http_close_connection(c);
        return NULL;
    }

    *log = *ngx_cycle->log;
    log->handler = NULL;
    log->data = ctx;
    log->action = NULL;
    ctx->connection = c;

    c->log = log;
    c->read->log = log;
    c->write->log = log;
    c->pool->log = log;
    c->log_error = NGX_ERROR_INFO;

    c->number = ngx_atomic_fetch_add(ngx_connection_counter, 1);
    c->type = SOCK_STREAM;
    c->listening = ls;
    c->start_time = ngx_current_msec;
    c->tcp_nodelay = NGX_TCP_NODELAY_DISABLED;
    c->tcp_nopush = NGX_TCP_NOPUSH_DISABLED;

    c->recv = ngx_mcp_call_recv;
    c->send = ngx_mcp_call_send;
    c->send_chain = ngx_mcp_call_send_chain;

    c->read->handler = ngx_mcp_call_event;
    c->write->handler = ngx_mcp_call_event;

    /*
     * never added to, nor deleted from, the event method; "eof": closed at
     * once
     */

    c->read->active = 1;
    c->write->active = (ngx_event_flags & NGX_USE_CLEAR_EVENT) ? 1 : 0;
    c->read->eof = 1;
    c->write->ready = 1;

    c->data = hc;

    return c;
}


static ngx_int_t
ngx_mcp_call_addresses(ngx_connection_t *c, ngx_listening_t *ls)
{
    ngx_sockaddr_t      *local;
    struct sockaddr_in  *sin;

    sin = ngx_pcalloc(c->pool, sizeof(struct sockaddr_in));
    local = ngx_pcalloc(c->pool, sizeof(ngx_sockaddr_t));

    if (sin == NULL || local == NULL) {
        return NGX_ERROR;
    }

    sin->sin_family = AF_INET;
    sin->sin_addr.s_addr = htonl(INADDR_LOOPBACK);

    c->sockaddr = (struct sockaddr *) sin;
    c->socklen = sizeof(struct sockaddr_in);
    ngx_str_set(&c->addr_text, "127.0.0.1");

    ngx_memcpy(local, ls->sockaddr, ngx_min(ls->socklen,
                                            sizeof(ngx_sockaddr_t)));

    /* a wildcard would be asked of the descriptor, which is no TCP socket */

    if (ngx_inet_wildcard(&local->sockaddr)) {

#if (NGX_HAVE_INET6)
        if (local->sockaddr.sa_family == AF_INET6) {
            local->sockaddr_in6.sin6_addr = in6addr_loopback;

        } else
#endif
        {
            local->sockaddr_in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        }
    }

    c->local_sockaddr = &local->sockaddr;
    c->local_socklen = ls->socklen;

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_call_request(ngx_mcp_call_t *call, ngx_http_request_t *r,
    ngx_http_addr_conf_t *addr)
{
    ngx_mcp_main_conf_t        *mcf;
    ngx_http_variable_value_t  *scheme;

    r->http_version = NGX_HTTP_VERSION_11;
    r->http_state = NGX_HTTP_PROCESS_REQUEST_STATE;
    r->internal = 1;

#if (NGX_STAT_STUB)
    (void) ngx_atomic_fetch_add(ngx_stat_reading, -1);
    r->stat_reading = 0;
    (void) ngx_atomic_fetch_add(ngx_stat_writing, 1);
    r->stat_writing = 1;
#endif

    r->read_event_handler = ngx_http_request_empty_handler;
    r->write_event_handler = ngx_http_request_empty_handler;

    /* both modules look at the main request: these say "done already" */

    r->limit_req_status = 1;
    r->limit_conn_status = 1;

    if (ngx_list_init(&r->headers_in.headers, r->pool, 8,
                      sizeof(ngx_table_elt_t))
        != NGX_OK
        || ngx_mcp_endpoint_server(r, addr, call->endpoint) != NGX_OK
        || ngx_mcp_endpoint_uri(r, call->endpoint) != NGX_OK
        || ngx_mcp_call_headers(call, r) != NGX_OK
        || ngx_mcp_call_body(call, r) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* what a client would see in $scheme, though there is no TLS here */

    mcf = ngx_http_get_module_main_conf(r, ngx_mcp_keepalive_module);

    r->schema = call->endpoint->scheme;

    scheme = &r->variables[mcf->scheme_index];

    scheme->data = call->endpoint->scheme.data;
    scheme->len = call->endpoint->scheme.len;
    scheme->valid = 1;
    scheme->no_cacheable = 0;
    scheme->not_found = 0;

    /*
     * The first error nginx would log is the root cause: kept, not written.
     * ngx_http_create_request() has put the log of the server in place.
     */

    ngx_mcp_capture_init(&call->capture, r->connection->log);

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_call_headers(ngx_mcp_call_t *call, ngx_http_request_t *r)
{
    ngx_uint_t                  i;
    ngx_keyval_t               *kv;
    ngx_table_elt_t            *h;
    ngx_http_header_t          *hh;
    ngx_http_core_main_conf_t  *cmcf;
    static ngx_str_t   host = ngx_string("Host");
    static ngx_str_t   type = ngx_string("Content-Type");
    static ngx_str_t   json = ngx_string("application/json");

    if (call->endpoint->host.len) {
        h = ngx_mcp_call_add_header(r, &host, &call->endpoint->host);
        if (h == NULL) {
            return NGX_ERROR;
        }

        r->headers_in.host = h;
    }

    h = ngx_mcp_call_add_header(r, &type, &json);
    if (h == NULL) {
        return NGX_ERROR;
    }

    r->headers_in.content_type = h;
    r->headers_in.content_length_n = call->body.len;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    kv = call->headers->elts;

    for (i = 0; i < call->headers->nelts; i++) {

        h = ngx_mcp_call_add_header(r, &kv[i].key, &kv[i].value);
        if (h == NULL) {
            return NGX_ERROR;
        }

        hh = ngx_hash_find(&cmcf->headers_in_hash, h->hash, h->lowcase_key,
                           h->key.len);

        if (hh && hh->handler(r, h, hh->offset) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_table_elt_t *
ngx_mcp_call_add_header(ngx_http_request_t *r, ngx_str_t *key,
    ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_in.headers);
    if (h == NULL) {
        return NULL;
    }

    ngx_memzero(h, sizeof(ngx_table_elt_t));

    h->key = *key;
    h->value = *value;

    h->lowcase_key = ngx_pnalloc(r->pool, key->len);
    if (h->lowcase_key == NULL) {
        return NULL;
    }

    h->hash = ngx_hash_strlow(h->lowcase_key, key->data, key->len);

    return h;
}


static ngx_int_t
ngx_mcp_call_body(ngx_mcp_call_t *call, ngx_http_request_t *r)
{
    ngx_buf_t                *b;
    ngx_http_request_body_t  *rb;

    rb = ngx_pcalloc(r->pool, sizeof(ngx_http_request_body_t));
    if (rb == NULL) {
        return NGX_ERROR;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    rb->bufs = ngx_alloc_chain_link(r->pool);
    if (rb->bufs == NULL) {
        return NGX_ERROR;
    }

    b->memory = 1;
    b->last_buf = 1;
    b->start = call->body.data;
    b->pos = b->start;
    b->last = b->start + call->body.len;
    b->end = b->last;

    rb->bufs->buf = b;
    rb->bufs->next = NULL;

    r->request_body = rb;

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_call_context(ngx_mcp_call_t *call, ngx_http_request_t *r)
{
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_pcalloc(r->pool, sizeof(ngx_mcp_ctx_t));
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ctx->conf = call->conf;
    ctx->call = call;
    ctx->pin = call->peer;
    ctx->start = ngx_current_msec;
    ctx->fresh = call->fresh;

    call->ctx = ctx;

    ngx_http_set_ctx(r, ctx, ngx_mcp_keepalive_module);

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_call_run(ngx_mcp_call_t *call, ngx_http_request_t *r)
{
    ngx_pool_cleanup_t          *cln;
    ngx_http_request_t          *sr;
    ngx_http_post_subrequest_t  *ps;

    if (ngx_mcp_call_context(call, r) != NGX_OK) {
        return NGX_ERROR;
    }

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    ps = ngx_palloc(r->pool, sizeof(ngx_http_post_subrequest_t));
    if (ps == NULL) {
        return NGX_ERROR;
    }

    ps->handler = ngx_mcp_call_subrequest_done;
    ps->data = call;

    if (ngx_http_subrequest(r, &r->uri, &r->args, &sr, ps,
                            NGX_HTTP_SUBREQUEST_BACKGROUND)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    sr->method = NGX_HTTP_POST;
    sr->method_name = r->method_name;

    sr->error_page = 1;

    call->request = sr;

    call->timer.handler = ngx_mcp_call_timer;
    call->timer.data = call;
    call->timer.log = ngx_cycle->log;

    call->end.handler = ngx_mcp_call_end;
    call->end.data = call;
    call->end.log = ngx_cycle->log;

    ngx_add_timer(&call->timer, call->timeout);

    ngx_queue_insert_tail(&ngx_mcp_calls, &call->queue);

    /* the one event common to all ways out of the core */

    cln->handler = ngx_mcp_call_cleanup;
    cln->data = call;

    /* the subrequest holds the last reference now */

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_OK;
}


/* Not from inside a filter: the request is gone afterwards. */

static void
ngx_mcp_call_cancel(ngx_mcp_call_t *call)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *sr;

    c = call->connection;
    sr = call->request;

    if (sr->upstream && sr->upstream->cleanup) {
        (*sr->upstream->cleanup)(sr);

    } else {

        /* the error must reach the core as it is, or it may wait for output */

        sr->post_subrequest = NULL;

        (void) ngx_mcp_request_quiet(sr);
        ngx_http_finalize_request(sr, NGX_ERROR);
    }

    ngx_http_run_posted_requests(c);

    if (call->request != NULL) {

        /* held by an operation in a thread: asked again until it lets go */

        ngx_add_timer(&call->timer, NGX_MCP_CALL_GRACE);
    }
}


static ngx_int_t
ngx_mcp_call_subrequest_done(ngx_http_request_t *r, void *data, ngx_int_t rc)
{
    /* no error page of any kind: whatever happened is known already */

    (void) ngx_mcp_request_quiet(r);

    return NGX_OK;
}


static void
ngx_mcp_call_cleanup(void *data)
{
    ngx_mcp_call_t  *call = data;

    call->outcome = call->ctx->outcome;

    if (call->timer.timer_set) {
        ngx_del_timer(&call->timer);
    }

    ngx_queue_remove(&call->queue);

    call->request = NULL;
    call->connection = NULL;

    ngx_post_event(&call->end, &ngx_posted_events);
}


static void
ngx_mcp_call_timer(ngx_event_t *ev)
{
    ngx_mcp_call_t  *call = ev->data;

    call->timedout = !call->answered;
    call->ctx->outcome.timedout = call->timedout;

    ngx_mcp_call_cancel(call);
}


static void
ngx_mcp_call_end(ngx_event_t *ev)
{
    ngx_mcp_call_t  *call = ev->data;

    call->done_handler(call);
}


static void
ngx_mcp_call_event(ngx_event_t *ev)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;
    ngx_mcp_ctx_t       *ctx;

    c = ev->data;
    r = c->data;

    if (c->close) {

        /* worker_shutdown_timeout */

        c->error = 0;
        c->close = 0;

        ctx = ngx_http_get_module_ctx(r->main, ngx_mcp_keepalive_module);

        ((ngx_mcp_call_t *) ctx->call)->cancelled = 1;
        ngx_mcp_call_cancel(ctx->call);

        return;
    }

    if (ev->delayed && ev->timedout) {
        ev->delayed = 0;
        ev->timedout = 0;
    }

    if (ev->write) {
        r->write_event_handler(r);

    } else {
        r->read_event_handler(r);
    }

    ngx_http_run_posted_requests(c);
}


static ssize_t
ngx_mcp_call_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    return NGX_AGAIN;
}


static ssize_t
ngx_mcp_call_send(ngx_connection_t *c, u_char *buf, size_t size)
{
    return size;
}


static ngx_chain_t *
ngx_mcp_call_send_chain(ngx_connection_t *c, ngx_chain_t *in, off_t limit)
{
    for ( /* void */ ; in; in = in->next) {
        c->sent += ngx_buf_size(in->buf);

        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }

    return NULL;
}


/* The location is chosen: from here on no cache may know the method. */

static ngx_int_t
ngx_mcp_call_precontent(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx != NULL && ctx->call != NULL) {
        r->method = NGX_HTTP_UNKNOWN;
    }

    return NGX_DECLINED;
}


/* Whatever a call's requests put out ends here. */

static ngx_int_t
ngx_mcp_call_header_filter(ngx_http_request_t *r)
{
    ngx_mcp_ctx_t   *ctx;
    ngx_mcp_call_t  *call;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call == NULL) {
        return ngx_mcp_next_header_filter(r);
    }

    call = ctx->call;

    r->header_sent = 1;
    r->filter_need_in_memory = 1;

    if (r->upstream == NULL) {
        return NGX_OK;
    }

    /* otherwise nothing is seen of the body before its end */

    if (!r->upstream->cacheable && !r->upstream->store) {
        r->upstream->buffering = 0;
    }

    if (r == call->request && r->upstream->headers_in.status_n) {
        ngx_mcp_call_answer(call, r->upstream);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_call_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_buf_t       *b;
    ngx_chain_t     *cl;
    ngx_mcp_ctx_t   *ctx;
    ngx_mcp_call_t  *call;

    ctx = ngx_mcp_request_ctx(r);

    if (ctx == NULL || ctx->call == NULL) {
        return ngx_mcp_next_body_filter(r, in);
    }

    call = ctx->call;

    for (cl = in; cl; cl = cl->next) {
        b = cl->buf;

        if (r == call->request && call->header) {

            if (b->last_buf || b->last_in_chain) {
                call->complete = 1;
            }

            if (!call->answered && ngx_buf_in_memory(b) && b->last > b->pos
                && call->body_handler(call, b->pos, b->last - b->pos)
                   == NGX_DONE)
            {
                call->answered = 1;

                if (!call->timer.timedout) {
                    ngx_add_timer(&call->timer, NGX_MCP_CALL_GRACE);
                }
            }
        }

        if (ngx_buf_in_memory(b)) {
            b->pos = b->last;
        }

        if (b->in_file) {
            b->file_pos = b->file_last;
        }
    }

    return NGX_OK;
}


static void
ngx_mcp_call_answer(ngx_mcp_call_t *call, ngx_http_upstream_t *u)
{
    ngx_table_elt_t   *h;
    static ngx_str_t   encoding = ngx_string("Content-Encoding");

    call->header = 1;
    call->status = u->headers_in.status_n;
    call->length = u->headers_in.content_length_n;
    call->retry_after = ngx_mcp_call_retry_after(u);

    h = u->headers_in.content_type;

    if (h != NULL) {
        call->media = mcp_rpc_media((char *) h->value.data, h->value.len);
    }

    h = ngx_mcp_request_header(&u->headers_in.headers, &encoding);

    if (h != NULL && h->value.len
        && ngx_strcasecmp(h->value.data, (u_char *) "identity") != 0)
    {
        call->encoded = 1;
    }
}


static time_t
ngx_mcp_call_retry_after(ngx_http_upstream_t *u)
{
    time_t             t;
    ngx_table_elt_t   *h;
    static ngx_str_t   name = ngx_string("Retry-After");

    h = ngx_mcp_request_header(&u->headers_in.headers, &name);
    if (h == NULL) {
        return -1;
    }

    t = ngx_atotm(h->value.data, h->value.len);

    if (t == (time_t) NGX_ERROR) {

        /* not seconds: a date */

        t = ngx_parse_http_time(h->value.data, h->value.len);

        if (t != (time_t) NGX_ERROR) {
            t = ngx_max(t - ngx_time(), 0);
        }
    }

    return (t == (time_t) NGX_ERROR) ? -1 : t;
}
