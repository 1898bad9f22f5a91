
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#include "ngx_mcp_endpoint.h"


static ngx_str_t ngx_mcp_endpoint_local(ngx_connection_t *c, u_char *buf);
static ngx_int_t ngx_mcp_endpoint_name(ngx_http_request_t *r, ngx_str_t *host,
    ngx_str_t *name);


/* A worker that leaves has closed them, and forgets how many there were. */
static ngx_uint_t  ngx_mcp_endpoint_sockets;


ngx_str_t
ngx_mcp_endpoint_text(ngx_http_request_t *r, size_t max)
{
    size_t             len;
    u_char            *p, buf[NGX_SOCKADDR_STRLEN];
    const char        *udp;
    ngx_str_t          text, local, host, scheme, *listen, *uri;
    ngx_connection_t  *c;

    ngx_str_null(&text);

    c = r->main->connection;

    if (c->listening == NULL) {
        return text;
    }

    listen = &c->listening->addr_text;
    local = ngx_mcp_endpoint_local(c, buf);
    uri = &r->main->unparsed_uri;

    /* HTTP/3 has no Host of its own */

    host = r->main->headers_in.host ? r->main->headers_in.host->value
                                    : r->main->headers_in.server;

    ngx_str_set(&scheme, "http");

#if (NGX_HTTP_SSL)
    if (c->ssl) {
        ngx_str_set(&scheme, "https");
    }
#endif

    /* TCP and UDP may share an address, but not their servers */

    udp = (c->listening->type == SOCK_DGRAM) ? "/udp" : "";

    len = listen->len + ngx_strlen(udp) + local.len + scheme.len + host.len
          + uri->len + 4;

    if (uri->len == 0 || len > max) {
        return text;
    }

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        return text;
    }

    text.data = p;

    p = ngx_cpymem(p, listen->data, listen->len);
    p = ngx_cpymem(p, udp, ngx_strlen(udp));
    *p++ = '\n';
    p = ngx_cpymem(p, local.data, local.len);
    *p++ = '\n';
    p = ngx_cpymem(p, scheme.data, scheme.len);
    *p++ = '\n';
    p = ngx_cpymem(p, host.data, host.len);
    *p++ = '\n';
    p = ngx_cpymem(p, uri->data, uri->len);

    text.len = p - text.data;

    return text;
}


ngx_int_t
ngx_mcp_endpoint_parse(ngx_str_t *text, ngx_mcp_endpoint_t *e)
{
    u_char      *p, *last;
    ngx_str_t   *part[5];
    ngx_uint_t   i;

    part[0] = &e->listen;
    part[1] = &e->local;
    part[2] = &e->scheme;
    part[3] = &e->host;
    part[4] = &e->uri;

    p = text->data;
    last = text->data + text->len;

    for (i = 0; i < 5; i++) {
        part[i]->data = p;

        if (i < 4) {
            p = ngx_strlchr(p, last, '\n');
            if (p == NULL) {
                return NGX_DECLINED;
            }

        } else {
            p = last;
        }

        part[i]->len = p++ - part[i]->data;
    }

    return e->uri.len ? NGX_OK : NGX_DECLINED;
}


void
ngx_mcp_endpoint_init_process(ngx_cycle_t *cycle)
{
    ngx_mcp_endpoint_sockets = cycle->listening.nelts;
}


ngx_http_addr_conf_t *
ngx_mcp_endpoint_address(ngx_mcp_endpoint_t *e, ngx_listening_t **lsp)
{
    int                   type;
    ngx_uint_t            i, n;
    ngx_str_t             listen;
    ngx_listening_t      *ls;
    ngx_http_port_t      *port;
    ngx_http_in_addr_t   *addr;
#if (NGX_HAVE_INET6)
    ngx_http_in6_addr_t  *addr6;
    struct in6_addr       inaddr6;
#endif

    type = SOCK_STREAM;
    listen = e->listen;

    if (listen.len > 4
        && ngx_strncmp(listen.data + listen.len - 4, "/udp", 4) == 0)
    {
        type = SOCK_DGRAM;
        listen.len -= 4;
    }

    ls = ngx_cycle->listening.elts;

    for (i = 0; i < ngx_mcp_endpoint_sockets; i++) {

        if (ls[i].handler == ngx_http_init_connection
            && ls[i].servers != NULL
            && ls[i].type == type
            && ls[i].addr_text.len == listen.len
            && ngx_strncmp(ls[i].addr_text.data, listen.data, listen.len)
               == 0)
        {
            break;
        }
    }

    if (i == ngx_mcp_endpoint_sockets) {
        return NULL;
    }

    *lsp = &ls[i];
    port = ls[i].servers;

    /* the last address is "*", as in ngx_http_init_connection() */

#if (NGX_HAVE_INET6)

    if (ls[i].sockaddr->sa_family == AF_INET6) {
        addr6 = port->addrs;
        ngx_memzero(&inaddr6, sizeof(struct in6_addr));

        if (port->naddrs > 1) {
            (void) ngx_inet6_addr(e->local.data, e->local.len,
                                  inaddr6.s6_addr);
        }

        for (n = 0; n < port->naddrs - 1; n++) {
            if (ngx_memcmp(&addr6[n].addr6, &inaddr6, 16) == 0) {
                break;
            }
        }

        return &addr6[n].conf;
    }

#endif

    addr = port->addrs;

    for (n = 0; n < port->naddrs - 1; n++) {
        if (addr[n].addr == ngx_inet_addr(e->local.data, e->local.len)) {
            break;
        }
    }

    return &addr[n].conf;
}


ngx_int_t
ngx_mcp_endpoint_server(ngx_http_request_t *r, ngx_http_addr_conf_t *addr,
    ngx_mcp_endpoint_t *e)
{
    ngx_http_core_srv_conf_t  *cscf;
    ngx_http_virtual_names_t  *names;

    cscf = NULL;
    names = addr->virtual_names;

    if (ngx_mcp_endpoint_name(r, &e->host, &r->headers_in.server) != NGX_OK) {
        return NGX_ERROR;
    }

    if (names != NULL) {
        cscf = ngx_hash_find_combined(&names->names,
                                      ngx_hash_key(r->headers_in.server.data,
                                                   r->headers_in.server.len),
                                      r->headers_in.server.data,
                                      r->headers_in.server.len);
    }

#if (NGX_PCRE)

    if (names != NULL && cscf == NULL && r->headers_in.server.len) {
        ngx_int_t   rc;
        ngx_uint_t  i;

        for (i = 0; i < names->nregex; i++) {

            rc = ngx_http_regex_exec(r, names->regex[i].regex,
                                     &r->headers_in.server);
            if (rc == NGX_OK) {
                cscf = names->regex[i].server;
                break;
            }

            if (rc != NGX_DECLINED) {
                return NGX_ERROR;
            }
        }
    }

#endif

    if (cscf == NULL) {
        cscf = addr->default_server;
    }

    r->srv_conf = cscf->ctx->srv_conf;
    r->loc_conf = cscf->ctx->loc_conf;

    return NGX_OK;
}


ngx_int_t
ngx_mcp_endpoint_uri(ngx_http_request_t *r, ngx_mcp_endpoint_t *e)
{
    u_char                    *p;
    ngx_buf_t                 *b;
    ngx_http_core_srv_conf_t  *cscf;

    b = ngx_create_temp_buf(r->pool, e->uri.len + sizeof("POST  HTTP/1.1\r\n"));
    if (b == NULL) {
        return NGX_ERROR;
    }

    b->last = ngx_sprintf(b->last, "POST %V HTTP/1.1\r\n", &e->uri);

    if (ngx_http_parse_request_line(r, b) != NGX_OK) {
        return NGX_ERROR;
    }

    if (r->uri_end == NULL || r->uri_start == NULL) {
        return NGX_ERROR;
    }

    r->unparsed_uri.data = r->uri_start;
    r->unparsed_uri.len = r->uri_end - r->uri_start;

    r->request_line.data = r->request_start;
    r->request_line.len = r->request_end - r->request_start;

    p = r->args_start ? r->args_start - 1 : r->uri_end;

    if (r->complex_uri || r->quoted_uri || r->empty_path_in_uri) {

        r->uri.data = ngx_pnalloc(r->pool, r->unparsed_uri.len + 1);
        if (r->uri.data == NULL) {
            return NGX_ERROR;
        }

        cscf = ngx_http_get_module_srv_conf(r, ngx_http_core_module);

        if (ngx_http_parse_complex_uri(r, cscf->merge_slashes) != NGX_OK) {
            return NGX_ERROR;
        }

    } else {
        r->uri.data = r->uri_start;
        r->uri.len = p - r->uri_start;
    }

    if (r->args_start && r->uri_end > r->args_start) {
        r->args.data = r->args_start;
        r->args.len = r->uri_end - r->args_start;
    }

    r->method = NGX_HTTP_POST;
    ngx_str_set(&r->method_name, "POST");
    ngx_str_set(&r->http_protocol, "HTTP/1.1");

    return NGX_OK;
}


static ngx_str_t
ngx_mcp_endpoint_local(ngx_connection_t *c, u_char *buf)
{
    ngx_str_t         local;
    ngx_http_port_t  *port;

    ngx_str_set(&local, "");

    port = c->listening->servers;

    if (port == NULL || port->naddrs < 2) {
        return local;
    }

    local.data = buf;
    local.len = NGX_SOCKADDR_STRLEN;

    if (ngx_connection_local_sockaddr(c, &local, 0) != NGX_OK) {
        local.len = 0;
    }

    return local;
}


/* A Host as nginx looks it up: no port, no final dot, in lower case. */

static ngx_int_t
ngx_mcp_endpoint_name(ngx_http_request_t *r, ngx_str_t *host, ngx_str_t *name)
{
    u_char  *p, *last;

    last = host->data + host->len;

    p = (host->len && host->data[0] == '[')
        ? ngx_strlchr(host->data, last, ']') : host->data;

    p = p ? ngx_strlchr(p, last, ':') : NULL;

    last = p ? p : last;

    if (last > host->data && *(last - 1) == '.') {
        last--;
    }

    name->len = last - host->data;
    name->data = ngx_pnalloc(r->pool, name->len + 1);
    if (name->data == NULL) {
        return NGX_ERROR;
    }

    ngx_strlow(name->data, host->data, name->len);

    return NGX_OK;
}
