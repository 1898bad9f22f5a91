
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include <openssl/rand.h>

#include "mcp/mcp_start.h"
#include "ngx_mcp_endpoint.h"
#include "ngx_mcp_handshake.h"


#define NGX_MCP_HANDSHAKE_RANDOM  12        /* bytes in an id */


struct ngx_mcp_handshake_s {
    ngx_pool_t                 *pool;
    ngx_mcp_srv_conf_t         *conf;
    ngx_mcp_session_ref_t       ref;
    ngx_mcp_revival_t           rev;
    ngx_mcp_handshake_done_pt   done;
    ngx_msec_t                  end;        /* all must be over by then */
    ngx_str_t                   text;       /* of the endpoint */
    ngx_mcp_endpoint_t          endpoint;
    ngx_array_t                 headers;    /* of ngx_keyval_t */
    ngx_mcp_call_t              call;
    mcp_start_reader_t         *reader;
    mcp_start_answer_t          answer;
    ngx_str_t                   session;    /* the server's new id */
    ngx_str_t                   version;
    ngx_str_t                   peer;       /* that answered */
    char                        id[MCP_RPC_ID_MAX];
    char                        body[MCP_START_BODY_MAX];
};


static ngx_mcp_handshake_t *ngx_mcp_handshake_create(ngx_http_request_t *r,
    ngx_mcp_srv_conf_t *conf, ngx_mcp_revival_t *rev);
static ngx_int_t ngx_mcp_handshake_headers(ngx_mcp_handshake_t *h,
    ngx_http_request_t *r);
static ngx_uint_t ngx_mcp_handshake_passes(ngx_str_t *name);
static ngx_int_t ngx_mcp_handshake_add(ngx_mcp_handshake_t *h, ngx_str_t *key,
    ngx_str_t *value);
static size_t ngx_mcp_handshake_body(ngx_mcp_handshake_t *h);
static ngx_int_t ngx_mcp_handshake_call(ngx_mcp_handshake_t *h, size_t len,
    ngx_mcp_call_done_pt done);
static void ngx_mcp_handshake_header(ngx_mcp_call_t *call,
    ngx_http_upstream_t *u);
static ngx_int_t ngx_mcp_handshake_read(ngx_mcp_call_t *call, u_char *data,
    size_t len);
static void ngx_mcp_handshake_answered(ngx_mcp_call_t *call);
static ngx_int_t ngx_mcp_handshake_check(ngx_mcp_handshake_t *h);
static void ngx_mcp_handshake_initialized(ngx_mcp_call_t *call);
static void ngx_mcp_handshake_succeed(ngx_mcp_handshake_t *h);
static void ngx_mcp_handshake_fail(ngx_mcp_handshake_t *h,
    const char *reason);
static void ngx_mcp_handshake_close(ngx_mcp_handshake_t *h);


/* Of a client's request all goes along but what is said of this very one. */

static ngx_str_t  ngx_mcp_handshake_own[] = {
    ngx_string("Accept"),
    ngx_string("Accept-Encoding"),
    ngx_string("Connection"),
    ngx_string("Content-Encoding"),
    ngx_string("Content-Length"),
    ngx_string("Content-Type"),
    ngx_string("Expect"),
    ngx_string("Host"),
    ngx_string("Keep-Alive"),
    ngx_string("Last-Event-ID"),
    ngx_string("Mcp-Method"),
    ngx_string("Mcp-Name"),
    ngx_string("MCP-Protocol-Version"),
    ngx_string("Mcp-Session-Id"),
    ngx_string("Range"),
    ngx_string("TE"),
    ngx_string("Trailer"),
    ngx_string("Transfer-Encoding"),
    ngx_string("Upgrade"),
    ngx_null_string
};


ngx_int_t
ngx_mcp_handshake_start(ngx_http_request_t *r, ngx_mcp_srv_conf_t *conf,
    ngx_mcp_session_ref_t *ref, ngx_mcp_revival_t *rev, ngx_msec_t timeout,
    ngx_mcp_handshake_done_pt done)
{
    size_t                len;
    ngx_int_t             rc;
    ngx_mcp_handshake_t  *h;

    h = ngx_mcp_call_short() ? NULL : ngx_mcp_handshake_create(r, conf, rev);

    if (h == NULL) {
        ngx_mcp_revival_fail(&conf->policy, ref, rev, 0);
        return NGX_ERROR;
    }

    h->ref = *ref;
    h->done = done;
    h->end = ngx_current_msec + timeout;

    h->call.header_handler = ngx_mcp_handshake_header;
    h->call.body_handler = ngx_mcp_handshake_read;

    len = ngx_mcp_handshake_body(h);

    rc = len ? ngx_mcp_handshake_call(h, len, ngx_mcp_handshake_answered)
             : NGX_ERROR;

    if (rc == NGX_OK) {
        return NGX_OK;
    }

    /* where it came from is gone for good; the rest may be better soon */

    ngx_mcp_revival_fail(&conf->policy, ref, rev, rc == NGX_DECLINED);
    ngx_mcp_handshake_close(h);

    return NGX_ERROR;
}


static ngx_mcp_handshake_t *
ngx_mcp_handshake_create(ngx_http_request_t *r, ngx_mcp_srv_conf_t *conf,
    ngx_mcp_revival_t *rev)
{
    ngx_str_t             text;
    ngx_pool_t           *pool;
    ngx_mcp_handshake_t  *h;

    pool = ngx_create_pool(4096, ngx_cycle->log);
    if (pool == NULL) {
        return NULL;
    }

    h = ngx_pcalloc(pool, sizeof(ngx_mcp_handshake_t));
    if (h == NULL) {
        goto failed;
    }

    h->pool = pool;
    h->conf = conf;
    h->rev = *rev;

    text = ngx_mcp_endpoint_text(r, NGX_MCP_ENDPOINT_MAX);

    h->text.data = ngx_pstrdup(pool, &text);
    h->text.len = text.len;

    if (text.len == 0 || h->text.data == NULL
        || ngx_mcp_endpoint_parse(&h->text, &h->endpoint) != NGX_OK
        || ngx_mcp_handshake_headers(h, r) != NGX_OK)
    {
        goto failed;
    }

    return h;

failed:

    ngx_destroy_pool(pool);

    return NULL;
}


static ngx_int_t
ngx_mcp_handshake_headers(ngx_mcp_handshake_t *h, ngx_http_request_t *r)
{
    ngx_table_elt_t        *e;
    ngx_mcp_header_walk_t   walk;
    static ngx_str_t        accept = ngx_string("Accept");
    static ngx_str_t        types = ngx_string("application/json, "
                                               "text/event-stream");
    static ngx_str_t        encoding = ngx_string("Accept-Encoding");
    static ngx_str_t        identity = ngx_string("identity");

    if (ngx_array_init(&h->headers, h->pool, 16, sizeof(ngx_keyval_t))
        != NGX_OK
        || ngx_mcp_handshake_add(h, &accept, &types) != NGX_OK
        || ngx_mcp_handshake_add(h, &encoding, &identity) != NGX_OK)
    {
        return NGX_ERROR;
    }

    ngx_mcp_header_walk(&walk, &r->headers_in.headers);

    for ( ;; ) {
        e = ngx_mcp_header_next(&walk, NULL);

        if (e == NULL) {
            return NGX_OK;
        }

        if (ngx_mcp_handshake_passes(&e->key)
            && ngx_mcp_handshake_add(h, &e->key, &e->value) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }
}


static ngx_uint_t
ngx_mcp_handshake_passes(ngx_str_t *name)
{
    ngx_str_t  *own;

    for (own = ngx_mcp_handshake_own; own->len; own++) {
        if (own->len == name->len
            && ngx_strncasecmp(own->data, name->data, name->len) == 0)
        {
            return 0;
        }
    }

    return 1;
}


static ngx_int_t
ngx_mcp_handshake_add(ngx_mcp_handshake_t *h, ngx_str_t *key, ngx_str_t *value)
{
    ngx_keyval_t  *kv;

    kv = ngx_array_push(&h->headers);
    if (kv == NULL) {
        return NGX_ERROR;
    }

    kv->key.len = key->len;
    kv->key.data = ngx_pnalloc(h->pool, key->len + 1);

    kv->value.len = value->len;
    kv->value.data = ngx_pnalloc(h->pool, value->len + 1);

    if (kv->key.data == NULL || kv->value.data == NULL) {
        kv->value.len = 0;
        return NGX_ERROR;
    }

    *ngx_cpymem(kv->key.data, key->data, key->len) = '\0';
    *ngx_cpymem(kv->value.data, value->data, value->len) = '\0';

    return NGX_OK;
}


static size_t
ngx_mcp_handshake_body(ngx_mcp_handshake_t *h)
{
    u_char  *last, random[NGX_MCP_HANDSHAKE_RANDOM];

    if (RAND_bytes(random, NGX_MCP_HANDSHAKE_RANDOM) != 1) {
        return 0;
    }

    last = ngx_cpymem(h->id, MCP_RPC_ID_PREFIX, sizeof(MCP_RPC_ID_PREFIX) - 1);
    last = ngx_hex_dump(last, random, NGX_MCP_HANDSHAKE_RANDOM);
    *last = '\0';

    return mcp_start_initialize(h->body, MCP_START_BODY_MAX, h->id,
                                (char *) h->rev.params.data,
                                h->rev.params.len);
}


static ngx_int_t
ngx_mcp_handshake_call(ngx_mcp_handshake_t *h, size_t len,
    ngx_mcp_call_done_pt done)
{
    ngx_mcp_call_t  *call;

    call = &h->call;

    if ((ngx_msec_int_t) (h->end - ngx_current_msec) <= 0) {
        return NGX_ERROR;
    }

    call->conf = h->conf;
    call->wanted = 1;
    call->stub.endpoint = &h->endpoint;
    call->stub.headers = &h->headers;
    call->stub.body.data = (u_char *) h->body;
    call->stub.body.len = len;
    call->peer = h->peer;
    call->timeout = h->end - ngx_current_msec;
    call->done_handler = done;
    call->data = h;

    return ngx_mcp_call_start(call);
}


static void
ngx_mcp_handshake_header(ngx_mcp_call_t *call, ngx_http_upstream_t *u)
{
    ngx_str_t             id;
    ngx_mcp_handshake_t  *h;

    h = call->data;

    if (h->reader != NULL || call->status < 200 || call->status >= 300
        || ngx_mcp_header_session_id(&u->headers_in.headers, &id) != NGX_OK)
    {
        return;
    }

    h->session.data = ngx_pstrdup(h->pool, &id);
    h->session.len = h->session.data ? id.len : 0;

    if (!call->encoded) {
        h->reader = mcp_start_create(call->media);
    }
}


static ngx_int_t
ngx_mcp_handshake_read(ngx_mcp_call_t *call, u_char *data, size_t len)
{
    ngx_mcp_handshake_t  *h;

    h = call->data;

    return (h->reader && mcp_start_feed(h->reader, data, len)) ? NGX_DONE
                                                               : NGX_OK;
}


/* The server has answered the "initialize", or has not. */

static void
ngx_mcp_handshake_answered(ngx_mcp_call_t *call)
{
    size_t                len;
    ngx_mcp_handshake_t  *h;

    static ngx_str_t      session = ngx_string("Mcp-Session-Id");
    static ngx_str_t      version = ngx_string("MCP-Protocol-Version");

    h = call->data;

    if (ngx_mcp_handshake_check(h) != NGX_OK) {
        return;
    }

    h->peer.len = call->outcome.name_len;
    h->peer.data = ngx_pnalloc(h->pool, h->peer.len + 1);

    h->version.data = (u_char *) h->answer.version;
    h->version.len = ngx_strlen(h->answer.version);

    if (h->peer.data == NULL
        || ngx_mcp_handshake_add(h, &session, &h->session) != NGX_OK
        || (h->version.len
            && ngx_mcp_handshake_add(h, &version, &h->version) != NGX_OK))
    {
        ngx_mcp_handshake_fail(h, "no memory");
        return;
    }

    ngx_memcpy(h->peer.data, call->outcome.name, h->peer.len);

    ngx_memzero(call, sizeof(ngx_mcp_call_t));
    call->body_handler = ngx_mcp_handshake_read;

    len = mcp_start_initialized(h->body, MCP_START_BODY_MAX);

    if (len == 0
        || ngx_mcp_handshake_call(h, len, ngx_mcp_handshake_initialized)
           != NGX_OK)
    {
        ngx_mcp_handshake_fail(h, "no time, memory or connection was left");
    }
}


/* NGX_DECLINED: it failed, the handshake is over. */

static ngx_int_t
ngx_mcp_handshake_check(ngx_mcp_handshake_t *h)
{
    ngx_mcp_call_t     *call;
    ngx_mcp_outcome_t  *o;

    call = &h->call;
    o = &call->outcome;

    if (call->cancelled || o->limited) {
        ngx_mcp_handshake_fail(h, NULL);
        return NGX_DECLINED;
    }

    if (!call->header && o->done && o->peer && o->stage == MCP_STAGE_CONNECT
        && !ngx_mcp_capture_local(&call->capture))
    {
        /* this peer is gone as well; there may be another one */

        ngx_mcp_peer_event(&h->conf->policy, o->peer, MCP_EVENT_FAILURE,
                           o->epoch, call->capture.text[0]
                                     ? call->capture.text : "connect() failed",
                           ngx_mcp_capture_refused(&call->capture));

        ngx_mcp_handshake_fail(h, NULL);
        return NGX_DECLINED;
    }

    if (h->reader != NULL) {
        mcp_start_finish(h->reader, &h->answer);
    }

    if (!call->header) {
        ngx_mcp_handshake_fail(h, call->timedout ? "no answer in time"
                                                 : "no answer");

    } else if (call->status < 200 || call->status >= 300) {
        ngx_mcp_handshake_fail(h, "it was refused");

    } else if (h->session.len == 0) {
        ngx_mcp_handshake_fail(h, "no session id in the answer");

    } else if (!h->answer.found) {
        ngx_mcp_handshake_fail(h, "the answer is none");

    } else if (h->rev.version_len
               && (h->rev.version_len != ngx_strlen(h->answer.version)
                   || ngx_memcmp(h->rev.version, h->answer.version,
                                 h->rev.version_len) != 0))
    {
        ngx_mcp_handshake_fail(h, "another protocol version");

    } else {
        return NGX_OK;
    }

    return NGX_DECLINED;
}


static void
ngx_mcp_handshake_initialized(ngx_mcp_call_t *call)
{
    ngx_mcp_handshake_t  *h;

    h = call->data;

    if (call->header && call->status >= 200 && call->status < 300) {
        ngx_mcp_handshake_succeed(h);
        return;
    }

    ngx_mcp_handshake_fail(h, "\"notifications/initialized\" was refused");
}


static void
ngx_mcp_handshake_succeed(ngx_mcp_handshake_t *h)
{
    ngx_uint_t  n;

    n = ngx_mcp_revival_done(&h->conf->policy, &h->ref, &h->rev, &h->session,
                             &h->peer);
    if (n) {
        ngx_log_error(NGX_LOG_NOTICE, ngx_cycle->log, 0,
                      "mcp upstream \"%V\" peer \"%V\": %ui session%s revived",
                      &h->conf->policy.name, &h->peer, n, n == 1 ? "" : "s");
    }

    h->done(&h->ref);

    ngx_mcp_handshake_close(h);
}


/* NULL for a reason: it is tried again when those that wait look next. */

static void
ngx_mcp_handshake_fail(ngx_mcp_handshake_t *h, const char *reason)
{
    if (reason != NULL) {
        ngx_log_error(NGX_LOG_INFO, ngx_cycle->log, 0,
                      "mcp upstream \"%V\": a session was not revived: %s",
                      &h->conf->policy.name, reason);
    }

    ngx_mcp_revival_fail(&h->conf->policy, &h->ref, &h->rev, reason != NULL);

    if (reason != NULL) {
        h->done(&h->ref);
    }

    ngx_mcp_handshake_close(h);
}


static void
ngx_mcp_handshake_close(ngx_mcp_handshake_t *h)
{
    ngx_uint_t     i;
    ngx_keyval_t  *kv;

    mcp_start_destroy(h->reader);

    /* credentials among them */

    kv = h->headers.elts;

    for (i = 0; i < h->headers.nelts; i++) {
        ngx_explicit_memzero(kv[i].value.data, kv[i].value.len);
    }

    ngx_destroy_pool(h->pool);
}
