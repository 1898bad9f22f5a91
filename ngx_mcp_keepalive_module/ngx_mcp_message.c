
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include <openssl/rand.h>

#include "ngx_mcp_message.h"
#include "ngx_mcp_scrub.h"


#define NGX_MCP_MESSAGE_RANDOM  12      /* bytes in an id */


static const char *ngx_mcp_message_method(ngx_mcp_lease_t *lease);
static ngx_int_t ngx_mcp_message_copy(ngx_pool_t *pool, ngx_str_t *text);
static ngx_int_t ngx_mcp_message_add(ngx_array_t *headers, ngx_str_t *key,
    ngx_str_t *value);
static ngx_uint_t ngx_mcp_message_passed(ngx_mcp_srv_conf_t *conf,
    ngx_str_t *name);
static ngx_uint_t ngx_mcp_message_next(ngx_str_t *headers, ngx_str_t *name,
    ngx_str_t *value);


ngx_int_t
ngx_mcp_message_keep(ngx_pool_t *pool, ngx_mcp_lease_t *lease)
{
    ngx_str_t  headers;

    headers = lease->headers;

    if (ngx_mcp_message_copy(pool, &lease->peer_name) != NGX_OK
        || ngx_mcp_message_copy(pool, &lease->id) != NGX_OK
        || ngx_mcp_message_copy(pool, &lease->version) != NGX_OK
        || ngx_mcp_message_copy(pool, &lease->endpoint) != NGX_OK
        || ngx_mcp_message_copy(pool, &lease->headers) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (headers.len) {
        ngx_explicit_memzero(headers.data, headers.len);
    }

    return NGX_OK;
}


ngx_int_t
ngx_mcp_message_headers(ngx_pool_t *pool, ngx_mcp_srv_conf_t *conf,
    ngx_mcp_lease_t *lease, ngx_array_t *headers)
{
    ngx_str_t         rest, name, value, method;

    static ngx_str_t  accept = ngx_string("Accept");
    static ngx_str_t  types = ngx_string("application/json, "
                                         "text/event-stream");
    static ngx_str_t  encoding = ngx_string("Accept-Encoding");
    static ngx_str_t  identity = ngx_string("identity");
    static ngx_str_t  session = ngx_string("Mcp-Session-Id");
    static ngx_str_t  version = ngx_string("MCP-Protocol-Version");
    static ngx_str_t  method_name = ngx_string("Mcp-Method");

    method.data = (u_char *) ngx_mcp_message_method(lease);
    method.len = ngx_strlen(method.data);

    if (ngx_array_init(headers, pool, 8, sizeof(ngx_keyval_t)) != NGX_OK
        || ngx_mcp_message_add(headers, &accept, &types) != NGX_OK
        || ngx_mcp_message_add(headers, &encoding, &identity) != NGX_OK
        || (!lease->modern
            && ngx_mcp_message_add(headers, &session, &lease->id) != NGX_OK)
        || (lease->modern
            && ngx_mcp_message_add(headers, &method_name, &method) != NGX_OK)
        || (lease->version.len
            && ngx_mcp_message_add(headers, &version, &lease->version)
               != NGX_OK))
    {
        return NGX_ERROR;
    }

    rest = lease->headers;

    while (ngx_mcp_message_next(&rest, &name, &value)) {

        if (ngx_mcp_message_passed(conf, &name)
            && ngx_mcp_message_add(headers, &name, &value) != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


size_t
ngx_mcp_message_body(ngx_mcp_lease_t *lease, char *id, u_char *buf)
{
    u_char  *last, random[NGX_MCP_MESSAGE_RANDOM];

    /* a client counts its ids; this is none it will ever use */

    if (RAND_bytes(random, NGX_MCP_MESSAGE_RANDOM) != 1) {
        return 0;
    }

    last = ngx_cpymem(id, MCP_RPC_ID_PREFIX, sizeof(MCP_RPC_ID_PREFIX) - 1);
    last = ngx_hex_dump(last, random, NGX_MCP_MESSAGE_RANDOM);
    *last = '\0';

    return mcp_rpc_build((char *) buf, NGX_MCP_MESSAGE_MAX,
                         ngx_mcp_message_method(lease), id,
                         lease->modern ? (char *) lease->version.data : NULL);
}


void
ngx_mcp_message_scrub(ngx_mcp_lease_t *lease, ngx_str_t *uri, char *text)
{
    ngx_str_t  rest, name, value;

    ngx_mcp_scrub(text, lease->id.data, lease->id.len);
    ngx_mcp_scrub_uri(text, uri->data, uri->len);

    rest = lease->headers;

    while (ngx_mcp_message_next(&rest, &name, &value)) {
        ngx_mcp_scrub_value(text, value.data, value.len);
    }
}


static const char *
ngx_mcp_message_method(ngx_mcp_lease_t *lease)
{
    return (lease->method == NGX_MCP_METHOD_PING) ? "ping" : "tools/list";
}


static ngx_int_t
ngx_mcp_message_copy(ngx_pool_t *pool, ngx_str_t *text)
{
    u_char  *data;

    data = ngx_pnalloc(pool, text->len + 1);
    if (data == NULL) {
        return NGX_ERROR;
    }

    *ngx_cpymem(data, text->data, text->len) = '\0';
    text->data = data;

    return NGX_OK;
}


static ngx_int_t
ngx_mcp_message_add(ngx_array_t *headers, ngx_str_t *key, ngx_str_t *value)
{
    ngx_keyval_t  *kv;

    kv = ngx_array_push(headers);
    if (kv == NULL) {
        return NGX_ERROR;
    }

    kv->key = *key;
    kv->value = *value;

    return NGX_OK;
}


/* Remembered under the configuration before, it may be wanted no more. */

static ngx_uint_t
ngx_mcp_message_passed(ngx_mcp_srv_conf_t *conf, ngx_str_t *name)
{
    ngx_str_t   *header;
    ngx_uint_t   i;

    if (conf->pass_headers == NULL) {
        return 0;
    }

    header = conf->pass_headers->elts;

    for (i = 0; i < conf->pass_headers->nelts; i++) {
        if (header[i].len == name->len
            && ngx_strncasecmp(header[i].data, name->data, name->len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


/* "name NUL value NUL" ... */

static ngx_uint_t
ngx_mcp_message_next(ngx_str_t *headers, ngx_str_t *name, ngx_str_t *value)
{
    size_t  n;

    if (headers->len == 0) {
        return 0;
    }

    name->data = headers->data;
    name->len = ngx_strlen(name->data);

    value->data = name->data + name->len + 1;
    value->len = ngx_strlen(value->data);

    n = name->len + value->len + 2;

    headers->data += n;
    headers->len -= ngx_min(n, headers->len);

    return 1;
}
