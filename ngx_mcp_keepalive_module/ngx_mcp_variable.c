
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_modern.h"
#include "mcp/mcp_rpc_subject.h"
#include "ngx_mcp_conf.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_variable.h"
#include "ngx_mcp_verdict.h"
#include "ngx_mcp_view.h"


#define NGX_MCP_DIGEST_LEN  6           /* 12 hex digits */

#define NGX_MCP_WORD_BEGIN  "=?base64?"
#define NGX_MCP_WORD_END    "?="


/* What a body says; kept with the request, of which it is read once. */

typedef struct {
    ngx_chain_t                *bufs;       /* the body's */
    mcp_rpc_subject_t           subject;
} ngx_mcp_variable_body_t;


static ngx_int_t ngx_mcp_variable_session(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_mcp_variable_version(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_mcp_variable_subject(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_mcp_variable_peer(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_mcp_variable_peer_state(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);
static ngx_int_t ngx_mcp_variable_verdict(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data);

static ngx_uint_t ngx_mcp_variable_off(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_variable_text(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, const void *text, size_t len);
static size_t ngx_mcp_variable_word(ngx_http_request_t *r, ngx_str_t *name,
    char *word);
static mcp_rpc_subject_t *ngx_mcp_variable_body(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_variable_read(ngx_http_request_t *r,
    mcp_rpc_subject_t *subject);
static void ngx_mcp_variable_cleanup(void *data);
static ngx_mcp_peer_view_t *ngx_mcp_variable_view(ngx_http_request_t *r);


#define SUBJECT(member)  offsetof(mcp_rpc_subject_t, member)


/* those that change while a request is served are never cached */

static ngx_http_variable_t  ngx_mcp_variables[] = {

    { ngx_string("mcp_session"), NULL,
      ngx_mcp_variable_session, 0, 0, 0 },

    { ngx_string("mcp_protocol_version"), NULL,
      ngx_mcp_variable_version, 0, 0, 0 },

    { ngx_string("mcp_method"), NULL,
      ngx_mcp_variable_subject, SUBJECT(method), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("mcp_name"), NULL,
      ngx_mcp_variable_subject, SUBJECT(name), NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("mcp_peer"), NULL,
      ngx_mcp_variable_peer, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("mcp_peer_state"), NULL,
      ngx_mcp_variable_peer_state, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

    { ngx_string("mcp_verdict"), NULL,
      ngx_mcp_variable_verdict, 0, NGX_HTTP_VAR_NOCACHEABLE, 0 },

      ngx_http_null_variable
};


ngx_int_t
ngx_mcp_variable_add(ngx_conf_t *cf)
{
    ngx_http_variable_t  *var, *v;

    for (v = ngx_mcp_variables; v->name.len; v++) {

        var = ngx_http_add_variable(cf, &v->name, v->flags);
        if (var == NULL) {
            return NGX_ERROR;
        }

        var->get_handler = v->get_handler;
        var->data = v->data;
    }

    return NGX_OK;
}


/*
 * A digest under the key of the first zone: limits are looked up before it is
 * known where a request goes, so that one key serves all upstreams.
 */

static ngx_int_t
ngx_mcp_variable_session(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    u_char               *p, digest[NGX_MCP_DIGEST_LEN];
    ngx_str_t             id;
    ngx_int_t             rc;
    ngx_mcp_ctx_t        *ctx;
    ngx_mcp_zone_t      **zone;
    ngx_mcp_main_conf_t  *mcf;

    if (ngx_mcp_variable_off(r)) {
        return ngx_mcp_variable_text(r, v, NULL, 0);
    }

    ctx = ngx_mcp_request_trace(r);

    if (ctx != NULL && ctx->alias.len) {

        /* to a revived one the server has given another id */

        rc = NGX_OK;
        id = ctx->id;

    } else {
        rc = ngx_mcp_header_session_id(&r->headers_in.headers, &id);
    }

    if (rc == NGX_DECLINED) {
        rc = ngx_mcp_header_session_id(&r->headers_out.headers, &id);
    }

    if (rc != NGX_OK) {
        (void) ngx_mcp_variable_text(r, v, NULL, 0);

        if (rc == NGX_DECLINED && !r->header_sent) {

            /* asked again it may be known: the answer may issue one */

            v->not_found = 0;
            v->len = 0;
            v->data = (u_char *) "";
        }

        return NGX_OK;
    }

    p = ngx_pnalloc(r->pool, 2 * NGX_MCP_DIGEST_LEN);
    if (p == NULL) {
        return NGX_ERROR;
    }

    mcf = ngx_http_get_module_main_conf(r, ngx_mcp_keepalive_module);
    zone = mcf->zones.elts;

    ngx_mcp_zone_digest(zone[0], id.data, id.len, digest, NGX_MCP_DIGEST_LEN);
    ngx_hex_dump(p, digest, NGX_MCP_DIGEST_LEN);

    return ngx_mcp_variable_text(r, v, p, 2 * NGX_MCP_DIGEST_LEN);
}


static ngx_int_t
ngx_mcp_variable_version(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    char              word[MCP_RPC_WORD_MAX + 1];
    ngx_table_elt_t  *h;

    h = ngx_mcp_variable_off(r)
        ? NULL : ngx_mcp_header_only(&r->headers_in.headers,
                                     &ngx_mcp_header_version);

    if (h == NULL
        || mcp_rpc_word(word, (char *) h->value.data, h->value.len) == 0)
    {
        return ngx_mcp_variable_text(r, v, NULL, 0);
    }

    return ngx_mcp_variable_text(r, v, h->value.data, h->value.len);
}


/*
 * The method or the name.  A modern request has both in its headers, where the
 * server sees to it that they are true.
 */

static ngx_int_t
ngx_mcp_variable_subject(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    char               *p, word[MCP_RPC_WORD_MAX + 1];
    size_t              len;
    ngx_table_elt_t    *h;
    mcp_rpc_subject_t  *subject;

    static ngx_str_t  method_name = ngx_string("Mcp-Method");
    static ngx_str_t  name_name = ngx_string("Mcp-Name");

    if (ngx_mcp_variable_off(r)) {
        return ngx_mcp_variable_text(r, v, NULL, 0);
    }

    h = ngx_mcp_header_only(&r->headers_in.headers, &ngx_mcp_header_version);

    if (h != NULL && mcp_modern_is((char *) h->value.data, h->value.len))
    {
        len = ngx_mcp_variable_word(r, (data == SUBJECT(method))
                                       ? &method_name : &name_name, word);
        p = ngx_pnalloc(r->pool, len + 1);
        if (p == NULL) {
            return NGX_ERROR;
        }

        ngx_memcpy(p, word, len);

        return ngx_mcp_variable_text(r, v, p, len);
    }

    subject = ngx_mcp_variable_body(r);

    if (subject == NULL) {
        return ngx_mcp_variable_text(r, v, NULL, 0);
    }

    p = (char *) subject + data;

    return ngx_mcp_variable_text(r, v, p, ngx_strlen(p));
}


static ngx_int_t
ngx_mcp_variable_peer(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    u_char               *p;
    ngx_mcp_peer_view_t  *peer;

    peer = ngx_mcp_variable_view(r);

    if (peer == NULL) {
        return ngx_mcp_variable_text(r, v, NULL, 0);
    }

    /* views move */

    p = ngx_pnalloc(r->pool, peer->name_len);
    if (p == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(p, peer->name, peer->name_len);

    return ngx_mcp_variable_text(r, v, p, peer->name_len);
}


static ngx_int_t
ngx_mcp_variable_peer_state(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, uintptr_t data)
{
    const char           *state;
    ngx_mcp_peer_view_t  *peer;

    peer = ngx_mcp_variable_view(r);

    if (peer == NULL) {
        return ngx_mcp_variable_text(r, v, NULL, 0);
    }

    state = mcp_health_state_name(peer->state);

    return ngx_mcp_variable_text(r, v, state, ngx_strlen(state));
}


static ngx_int_t
ngx_mcp_variable_verdict(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    uintptr_t data)
{
    const char     *name;
    mcp_verdict_t   verdict;
    ngx_mcp_ctx_t  *ctx;

    ctx = ngx_mcp_request_trace(r);

    verdict = (ctx != NULL) ? ngx_mcp_verdict(r, ctx) : MCP_VERDICT_N;

    if (verdict == MCP_VERDICT_N) {
        return ngx_mcp_variable_text(r, v, NULL, 0);
    }

    name = mcp_verdict_name(verdict);

    return ngx_mcp_variable_text(r, v, name, ngx_strlen(name));
}


/* True if nothing in the configuration has to do with MCP. */

static ngx_uint_t
ngx_mcp_variable_off(ngx_http_request_t *r)
{
    ngx_mcp_main_conf_t  *mcf;

    mcf = ngx_http_get_module_main_conf(r, ngx_mcp_keepalive_module);

    return mcf->zones.nelts == 0;
}


/* Length 0: not known. */

static ngx_int_t
ngx_mcp_variable_text(ngx_http_request_t *r, ngx_http_variable_value_t *v,
    const void *text, size_t len)
{
    v->valid = (len != 0);
    v->not_found = (len == 0);
    v->no_cacheable = 0;
    v->data = (u_char *) text;
    v->len = len;

    return NGX_OK;
}


/* What is not plain in a header is "=?base64?...?=". */

static size_t
ngx_mcp_variable_word(ngx_http_request_t *r, ngx_str_t *name, char *word)
{
    u_char            buf[4 * MCP_RPC_WORD_MAX];
    size_t            begin, end;
    ngx_str_t         value, coded, plain;
    ngx_table_elt_t  *h;

    h = ngx_mcp_header_only(&r->headers_in.headers, name);
    if (h == NULL) {
        return 0;
    }

    value = h->value;

    begin = sizeof(NGX_MCP_WORD_BEGIN) - 1;
    end = sizeof(NGX_MCP_WORD_END) - 1;

    if (value.len < begin + end
        || ngx_strncmp(value.data, NGX_MCP_WORD_BEGIN, begin) != 0
        || ngx_strncmp(value.data + value.len - end, NGX_MCP_WORD_END, end)
           != 0)
    {
        return mcp_rpc_word(word, (char *) value.data, value.len);
    }

    coded.data = value.data + begin;
    coded.len = value.len - begin - end;
    plain.data = buf;

    if (ngx_base64_decoded_length(coded.len) > sizeof(buf)
        || ngx_decode_base64(&plain, &coded) != NGX_OK)
    {
        return 0;
    }

    return mcp_rpc_word(word, (char *) plain.data, plain.len);
}


/* NULL: it is not in memory, or there is no memory for it. */

static mcp_rpc_subject_t *
ngx_mcp_variable_body(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t       *cln;
    ngx_http_request_body_t  *rb;
    ngx_mcp_variable_body_t  *body;

    rb = r->request_body;

    if (r->method != NGX_HTTP_POST || rb == NULL || rb->bufs == NULL
        || rb->rest > 0 || r->request_body_no_buffering)
    {
        return NULL;
    }

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler == ngx_mcp_variable_cleanup) {
            body = cln->data;

            if (body->bufs == rb->bufs) {
                return &body->subject;
            }
        }
    }

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_mcp_variable_body_t));
    if (cln == NULL) {
        return NULL;
    }

    body = cln->data;

    if (ngx_mcp_variable_read(r, &body->subject) != NGX_OK) {
        return NULL;
    }

    cln->handler = ngx_mcp_variable_cleanup;
    body->bufs = rb->bufs;

    return &body->subject;
}


static ngx_int_t
ngx_mcp_variable_read(ngx_http_request_t *r, mcp_rpc_subject_t *subject)
{
    int           cut;
    size_t        len, n;
    u_char       *p, *copy;
    ngx_chain_t  *cl;

    len = 0;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {

        if (!ngx_buf_in_memory(cl->buf)) {
            break;
        }

        len += cl->buf->last - cl->buf->pos;
    }

    n = ngx_min(len, MCP_RPC_HEAD_MAX);
    cut = (n < len || cl != NULL);

    cl = r->request_body->bufs;

    if (n == 0) {
        return NGX_DECLINED;
    }

    if (n <= (size_t) (cl->buf->last - cl->buf->pos)) {
        mcp_rpc_subject(subject, cl->buf->pos, n, cut);
        return NGX_OK;
    }

    copy = ngx_palloc(r->pool, n);
    if (copy == NULL) {
        return NGX_ERROR;
    }

    for (p = copy; cl != NULL && p < copy + n; cl = cl->next) {
        len = ngx_min(cl->buf->last - cl->buf->pos, copy + n - p);
        p = ngx_cpymem(p, cl->buf->pos, len);
    }

    mcp_rpc_subject(subject, copy, n, cut);

    return NGX_OK;
}


/* Only a mark by which the body's words are found again. */

static void
ngx_mcp_variable_cleanup(void *data)
{
    return;
}


/* The peer the request is with, or was with last, or ought to be with. */

static ngx_mcp_peer_view_t *
ngx_mcp_variable_view(ngx_http_request_t *r)
{
    ngx_str_t             pin;
    ngx_mcp_ctx_t        *ctx;
    ngx_mcp_view_t       *view;
    ngx_mcp_peer_view_t  *peer;
    ngx_http_upstream_t  *u;

    ctx = ngx_mcp_request_trace(r);

    if (ctx == NULL) {
        return NULL;
    }

    view = ngx_mcp_view(&ctx->conf->policy);

    /* if no peer was given, the name is the upstream's */

    u = ngx_mcp_verdict_upstream(r, ctx);

    if (u != NULL && u->state && u->state->peer) {

        peer = ngx_mcp_view_find(view, u->state->peer);
        if (peer != NULL) {
            return peer;
        }
    }

    if (!ctx->known) {
        return NULL;
    }

    pin.data = ctx->session.peer;
    pin.len = ctx->session.peer_len;

    return ngx_mcp_view_find(view, &pin);
}
