
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_capture.h"


static void ngx_mcp_capture_write(ngx_log_t *log, ngx_uint_t level,
    u_char *buf, size_t len);
static int ngx_mcp_capture_errno(u_char *p, u_char *last);


void
ngx_mcp_capture_init(ngx_mcp_capture_t *capture, ngx_log_t *log)
{
    capture->err = 0;
    capture->text[0] = '\0';

    log->log_level = NGX_LOG_ERR;
    log->connection = 0;
    log->handler = NULL;
    log->next = NULL;
    log->writer = ngx_mcp_capture_write;
    log->wdata = capture;
}


ngx_uint_t
ngx_mcp_capture_local(ngx_mcp_capture_t *capture)
{
    switch (capture->err) {

    case NGX_EMFILE:
    case NGX_ENFILE:
    case NGX_ENOMEM:
    case NGX_EACCES:
    case EADDRNOTAVAIL:
    case ENOBUFS:
    case EPERM:
        return 1;
    }

    return 0;
}


static void
ngx_mcp_capture_write(ngx_log_t *log, ngx_uint_t level, u_char *buf,
    size_t len)
{
    ngx_mcp_capture_t  *capture = log->wdata;

    size_t   n;
    u_char  *p, *last, *quote;

    last = buf + len;

    while (last > buf && (last[-1] == LF || last[-1] == CR)) {
        last--;
    }

    /* "date time [level] pid#tid: text" */

    p = ngx_strlchr(buf, last, ']');
    p = p ? ngx_strlchr(p, last, ':') : NULL;
    p = (p && last - p > 2) ? p + 2 : buf;

    /* what is quoted may be an address with a secret in it */

    quote = ngx_strlchr(p, last, '"');
    last = quote ? quote : last;

    while (last > p && last[-1] == ' ') {
        last--;
    }

    n = last - p;

    if (level <= NGX_LOG_ALERT) {
        ngx_log_error(level, ngx_cycle->log, 0, "%*s, in an mcp keepalive",
                      n, p);
    }

    if (capture->text[0] == '\0') {
        ngx_cpystrn((u_char *) capture->text, p,
                    ngx_min(n + 1, NGX_MCP_CAPTURE_MAX));

        capture->err = ngx_mcp_capture_errno(p, last);
    }
}


/* The number in "(111: Connection refused)". */

static int
ngx_mcp_capture_errno(u_char *p, u_char *last)
{
    u_char     *start;
    ngx_int_t   n;

    for (p = ngx_strlchr(p, last, '('); p; p = ngx_strlchr(p, last, '(')) {

        start = ++p;

        while (p < last && *p >= '0' && *p <= '9') {
            p++;
        }

        if (p > start && last - p > 1 && p[0] == ':' && p[1] == ' ') {
            n = ngx_atoi(start, p - start);
            return (n == NGX_ERROR) ? 0 : n;
        }
    }

    return 0;
}
