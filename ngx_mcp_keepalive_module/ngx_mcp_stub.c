
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_conf.h"
#include "ngx_mcp_stub.h"


static ngx_connection_t *ngx_mcp_stub_connection(ngx_mcp_stub_t *stub,
    ngx_listening_t *ls);
static ngx_int_t ngx_mcp_stub_addresses(ngx_connection_t *c,
    ngx_listening_t *ls);
static ngx_int_t ngx_mcp_stub_request(ngx_mcp_stub_t *stub,
    ngx_http_request_t *r, ngx_http_addr_conf_t *addr);
static ngx_int_t ngx_mcp_stub_headers(ngx_mcp_stub_t *stub,
    ngx_http_request_t *r);
static ngx_table_elt_t *ngx_mcp_stub_add_header(ngx_http_request_t *r,
    ngx_str_t *key, ngx_str_t *value);
static ngx_int_t ngx_mcp_stub_body(ngx_mcp_stub_t *stub, ngx_http_request_t *r);
static ssize_t ngx_mcp_stub_recv(ngx_connection_t *c, u_char *buf, size_t size);
static ssize_t ngx_mcp_stub_send(ngx_connection_t *c, u_char *buf, size_t size);
static ngx_chain_t *ngx_mcp_stub_send_chain(ngx_connection_t *c,
    ngx_chain_t *in, off_t limit);


static ngx_socket_t  ngx_mcp_stub_fd = (ngx_socket_t) -1;


ngx_int_t
ngx_mcp_stub_init_process(ngx_cycle_t *cycle)
{
    ngx_mcp_stub_fd = ngx_socket(AF_UNIX, SOCK_STREAM, 0);

    if (ngx_mcp_stub_fd == (ngx_socket_t) -1) {
        ngx_log_error(NGX_LOG_CRIT, cycle->log, ngx_socket_errno,
                      ngx_socket_n " for mcp keepalives failed");
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_mcp_stub_exit_process(void)
{
    if (ngx_mcp_stub_fd != (ngx_socket_t) -1) {
        (void) ngx_close_socket(ngx_mcp_stub_fd);
        ngx_mcp_stub_fd = (ngx_socket_t) -1;
    }
}


ngx_int_t
ngx_mcp_stub_create(ngx_mcp_stub_t *stub, ngx_http_request_t **rp)
{
    ngx_listening_t        *ls;
    ngx_connection_t       *c;
    ngx_http_request_t     *r;
    ngx_http_addr_conf_t   *addr;
    ngx_http_connection_t  *hc;

    addr = ngx_mcp_endpoint_address(stub->endpoint, &ls);
    if (addr == NULL) {
        return NGX_DECLINED;
    }

    c = ngx_mcp_stub_connection(stub, ls);
    if (c == NULL) {
        return NGX_ERROR;
    }

    hc = c->data;

    hc->addr_conf = addr;
    hc->conf_ctx = addr->default_server->ctx;

    r = ngx_http_create_request(c);
    if (r == NULL) {
        ngx_http_close_connection(c);
        return NGX_ERROR;
    }

    c->data = r;
    r->logged = 1;

    if (ngx_mcp_stub_request(stub, r, addr) != NGX_OK) {
        ngx_mcp_stub_destroy(r);
        return NGX_ERROR;
    }

    *rp = r;

    return NGX_OK;
}


void
ngx_mcp_stub_destroy(ngx_http_request_t *r)
{
    ngx_connection_t  *c;

    c = r->connection;

    ngx_http_free_request(r, 0);
    ngx_http_close_connection(c);
}


/*
 * A connection to nobody.  "shared" keeps the core from touching the
 * descriptor, so that each of its ways out is open to the request.
 */

static ngx_connection_t *
ngx_mcp_stub_connection(ngx_mcp_stub_t *stub, ngx_listening_t *ls)
{
    ngx_log_t              *log;
    ngx_connection_t       *c;
    ngx_http_log_ctx_t     *ctx;
    ngx_http_connection_t  *hc;

    c = ngx_get_connection(ngx_mcp_stub_fd, ngx_cycle->log);
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
        || ngx_mcp_stub_addresses(c, ls) != NGX_OK)
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

    c->recv = ngx_mcp_stub_recv;
    c->send = ngx_mcp_stub_send;
    c->send_chain = ngx_mcp_stub_send_chain;

    c->read->handler = stub->handler;
    c->write->handler = stub->handler;

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
ngx_mcp_stub_addresses(ngx_connection_t *c, ngx_listening_t *ls)
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
ngx_mcp_stub_request(ngx_mcp_stub_t *stub, ngx_http_request_t *r,
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
        || ngx_mcp_endpoint_server(r, addr, stub->endpoint) != NGX_OK
        || ngx_mcp_endpoint_uri(r, stub->endpoint) != NGX_OK
        || ngx_mcp_stub_headers(stub, r) != NGX_OK
        || ngx_mcp_stub_body(stub, r) != NGX_OK)
    {
        return NGX_ERROR;
    }

    /* what a client would see in $scheme, though there is no TLS here */

    mcf = ngx_http_get_module_main_conf(r, ngx_mcp_keepalive_module);

    r->schema = stub->endpoint->scheme;

    scheme = &r->variables[mcf->scheme_index];

    scheme->data = stub->endpoint->scheme.data;
    scheme->len = stub->endpoint->scheme.len;
    scheme->valid = 1;
    scheme->no_cacheable = 0;
    scheme->not_found = 0;

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_stub_headers(ngx_mcp_stub_t *stub, ngx_http_request_t *r)
{
    ngx_uint_t                  i;
    ngx_keyval_t               *kv;
    ngx_table_elt_t            *h;
    ngx_http_header_t          *hh;
    ngx_http_core_main_conf_t  *cmcf;
    static ngx_str_t   host = ngx_string("Host");
    static ngx_str_t   type = ngx_string("Content-Type");
    static ngx_str_t   json = ngx_string("application/json");

    if (stub->endpoint->host.len) {
        h = ngx_mcp_stub_add_header(r, &host, &stub->endpoint->host);
        if (h == NULL) {
            return NGX_ERROR;
        }

        r->headers_in.host = h;
    }

    h = ngx_mcp_stub_add_header(r, &type, &json);
    if (h == NULL) {
        return NGX_ERROR;
    }

    r->headers_in.content_type = h;
    r->headers_in.content_length_n = stub->body.len;

    cmcf = ngx_http_get_module_main_conf(r, ngx_http_core_module);
    kv = stub->headers->elts;

    for (i = 0; i < stub->headers->nelts; i++) {

        h = ngx_mcp_stub_add_header(r, &kv[i].key, &kv[i].value);
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
ngx_mcp_stub_add_header(ngx_http_request_t *r, ngx_str_t *key,
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
ngx_mcp_stub_body(ngx_mcp_stub_t *stub, ngx_http_request_t *r)
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
    b->start = stub->body.data;
    b->pos = b->start;
    b->last = b->start + stub->body.len;
    b->end = b->last;

    rb->bufs->buf = b;
    rb->bufs->next = NULL;

    r->request_body = rb;

    return NGX_OK;
}


static ssize_t
ngx_mcp_stub_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    return NGX_AGAIN;
}


static ssize_t
ngx_mcp_stub_send(ngx_connection_t *c, u_char *buf, size_t size)
{
    return size;
}


static ngx_chain_t *
ngx_mcp_stub_send_chain(ngx_connection_t *c, ngx_chain_t *in, off_t limit)
{
    for ( /* void */ ; in; in = in->next) {
        c->sent += ngx_buf_size(in->buf);

        in->buf->pos = in->buf->last;
        in->buf->file_pos = in->buf->file_last;
    }

    return NULL;
}
