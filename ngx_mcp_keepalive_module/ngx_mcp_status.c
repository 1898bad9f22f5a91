
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "mcp/mcp_accept.h"
#include "ngx_mcp_conf.h"
#include "ngx_mcp_request.h"
#include "ngx_mcp_snapshot.h"
#include "ngx_mcp_status.h"
#include "ngx_mcp_status_html.h"
#include "ngx_mcp_status_json.h"
#include "ngx_mcp_status_prom.h"


/* The formats, each with the handler of a location that has no other. */

typedef struct {
    ngx_str_t                   name;
    mcp_format_t                format;
    ngx_http_handler_pt         handler;
} ngx_mcp_status_format_t;


static ngx_int_t ngx_mcp_status_any(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_status_only_json(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_status_only_prometheus(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_status_only_html(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_status_handler(ngx_http_request_t *r,
    ngx_mcp_status_format_t *own);
static ngx_mcp_status_format_t *ngx_mcp_status_format(ngx_str_t *name);
static mcp_format_t ngx_mcp_status_accept(ngx_http_request_t *r);
static ngx_int_t ngx_mcp_status_text(ngx_http_request_t *r,
    mcp_format_t format, ngx_str_t *text);
static ngx_int_t ngx_mcp_status_headers(ngx_http_request_t *r,
    mcp_format_t format);
static ngx_int_t ngx_mcp_status_header(ngx_http_request_t *r, ngx_str_t *name,
    ngx_str_t *value);
static void ngx_mcp_status_type(ngx_http_request_t *r, mcp_format_t format);
static ngx_int_t ngx_mcp_status_send(ngx_http_request_t *r, ngx_str_t *text);


/* in the order of mcp_format_t */

static ngx_mcp_status_format_t  ngx_mcp_status_table[] = {
    { ngx_string("json"), MCP_FORMAT_JSON, ngx_mcp_status_only_json },
    { ngx_string("prometheus"), MCP_FORMAT_PROMETHEUS,
      ngx_mcp_status_only_prometheus },
    { ngx_string("html"), MCP_FORMAT_HTML, ngx_mcp_status_only_html },
    { ngx_null_string, 0, NULL }
};


char *
ngx_mcp_status_directive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_str_t                 *value;
    ngx_mcp_status_format_t   *f;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    for (f = ngx_mcp_status_table; f->name.len; f++) {
        if (clcf->handler == f->handler) {
            return "is duplicate";
        }
    }

    if (clcf->handler == ngx_mcp_status_any) {
        return "is duplicate";
    }

    value = cf->args->elts;

    if (cf->args->nelts == 1) {
        clcf->handler = ngx_mcp_status_any;
        return NGX_CONF_OK;
    }

    f = ngx_mcp_status_format(&value[1]);

    if (f == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" in \"%V\" directive, it must "
                           "be \"json\", \"prometheus\" or \"html\"",
                           &value[1], &cmd->name);
        return NGX_CONF_ERROR;
    }

    clcf->handler = f->handler;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_mcp_status_any(ngx_http_request_t *r)
{
    return ngx_mcp_status_handler(r, NULL);
}


static ngx_int_t
ngx_mcp_status_only_json(ngx_http_request_t *r)
{
    return ngx_mcp_status_handler(r,
                                  &ngx_mcp_status_table[MCP_FORMAT_JSON]);
}


static ngx_int_t
ngx_mcp_status_only_prometheus(ngx_http_request_t *r)
{
    return ngx_mcp_status_handler(r,
                                  &ngx_mcp_status_table[MCP_FORMAT_PROMETHEUS]);
}


static ngx_int_t
ngx_mcp_status_only_html(ngx_http_request_t *r)
{
    return ngx_mcp_status_handler(r,
                                  &ngx_mcp_status_table[MCP_FORMAT_HTML]);
}


/* "own" is the only format of the location; NULL: it has any. */

static ngx_int_t
ngx_mcp_status_handler(ngx_http_request_t *r, ngx_mcp_status_format_t *own)
{
    ngx_int_t                 rc;
    ngx_str_t                 name, text;
    mcp_format_t              format;
    ngx_mcp_status_format_t  *f;

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return NGX_HTTP_NOT_ALLOWED;
    }

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    f = NULL;

    if (ngx_http_arg(r, (u_char *) "format", 6, &name) == NGX_OK) {
        f = ngx_mcp_status_format(&name);
        if (f == NULL) {
            return NGX_HTTP_BAD_REQUEST;
        }
    }

    if (own == NULL) {
        format = f ? f->format : ngx_mcp_status_accept(r);

    } else if (own->format == MCP_FORMAT_HTML
               && f != NULL && f->format == MCP_FORMAT_JSON)
    {
        /* the page is nothing without it */
        format = MCP_FORMAT_JSON;

    } else {
        format = own->format;
    }

    rc = ngx_mcp_status_text(r, format, &text);

    if (rc == NGX_OK) {
        rc = ngx_mcp_status_headers(r, format);
    }

    return (rc == NGX_OK) ? ngx_mcp_status_send(r, &text)
                          : NGX_HTTP_INTERNAL_SERVER_ERROR;
}


static ngx_mcp_status_format_t *
ngx_mcp_status_format(ngx_str_t *name)
{
    ngx_mcp_status_format_t  *f;

    for (f = ngx_mcp_status_table; f->name.len; f++) {

        if (name->len == f->name.len
            && ngx_strncmp(name->data, f->name.data, name->len) == 0)
        {
            return f;
        }
    }

    return NULL;
}


static mcp_format_t
ngx_mcp_status_accept(ngx_http_request_t *r)
{
    ngx_table_elt_t   *h;
    static ngx_str_t   accept = ngx_string("Accept");

    h = ngx_mcp_header_first(&r->headers_in.headers, &accept);

    return h ? mcp_accept((char *) h->value.data, h->value.len)
             : MCP_FORMAT_JSON;
}


static ngx_int_t
ngx_mcp_status_text(ngx_http_request_t *r, mcp_format_t format,
    ngx_str_t *text)
{
    ngx_mcp_snapshot_t    s;
    ngx_mcp_main_conf_t  *mcf;

    if (format == MCP_FORMAT_HTML) {
        *text = ngx_mcp_status_html;
        return NGX_OK;
    }

    mcf = ngx_http_get_module_main_conf(r, ngx_mcp_keepalive_module);

    if (ngx_mcp_snapshot(r->pool, mcf, &s) != NGX_OK) {
        return NGX_ERROR;
    }

    return (format == MCP_FORMAT_JSON) ? ngx_mcp_status_json(r->pool, &s, text)
                                       : ngx_mcp_status_prom(r->pool, &s, text);
}


static ngx_int_t
ngx_mcp_status_headers(ngx_http_request_t *r, mcp_format_t format)
{
    static ngx_str_t  cache = ngx_string("Cache-Control");
    static ngx_str_t  no_store = ngx_string("no-store");
    static ngx_str_t  sniff = ngx_string("X-Content-Type-Options");
    static ngx_str_t  no_sniff = ngx_string("nosniff");
    static ngx_str_t  policy = ngx_string("Content-Security-Policy");
    static ngx_str_t  referrer = ngx_string("Referrer-Policy");
    static ngx_str_t  no_referrer = ngx_string("no-referrer");

    r->headers_out.status = NGX_HTTP_OK;

    ngx_mcp_status_type(r, format);

    if (ngx_mcp_status_header(r, &cache, &no_store) != NGX_OK
        || ngx_mcp_status_header(r, &sniff, &no_sniff) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (format != MCP_FORMAT_HTML) {
        return NGX_OK;
    }

    if (ngx_mcp_status_header(r, &policy, &ngx_mcp_status_html_policy)
        != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_mcp_status_header(r, &referrer, &no_referrer);
}


static ngx_int_t
ngx_mcp_status_header(ngx_http_request_t *r, ngx_str_t *name, ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    h->hash = 1;
#if (nginx_version >= 1023000)
    h->next = NULL;
#endif
    h->key = *name;
    h->value = *value;

    return NGX_OK;
}


static void
ngx_mcp_status_type(ngx_http_request_t *r, mcp_format_t format)
{
    ngx_str_t  *type;

    type = &r->headers_out.content_type;

    /* of another length than the type it has its charset already */

    switch (format) {

    case MCP_FORMAT_PROMETHEUS:
        ngx_str_set(type, "text/plain; version=0.0.4; charset=utf-8");
        r->headers_out.content_type_len = sizeof("text/plain") - 1;
        break;

    case MCP_FORMAT_HTML:
        ngx_str_set(type, "text/html; charset=utf-8");
        r->headers_out.content_type_len = sizeof("text/html") - 1;
        break;

    default: /* MCP_FORMAT_JSON */
        ngx_str_set(type, "application/json");
        r->headers_out.content_type_len = type->len;
    }

    r->headers_out.content_type_lowcase = NULL;
}


static ngx_int_t
ngx_mcp_status_send(ngx_http_request_t *r, ngx_str_t *text)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    r->headers_out.content_length_n = text->len;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->pos = text->data;
    b->last = text->data + text->len;
    b->memory = 1;
    b->last_buf = (r == r->main) ? 1 : 0;
    b->last_in_chain = 1;

    out.buf = b;
    out.next = NULL;

    return ngx_http_output_filter(r, &out);
}
