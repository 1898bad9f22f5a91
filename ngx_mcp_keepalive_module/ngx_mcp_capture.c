
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include <ngx_config.h>
#include <ngx_core.h>

#include "ngx_mcp_capture.h"


static void ngx_mcp_capture_write(ngx_log_t *log, ngx_uint_t level,
    u_char *buf, size_t len);
static void ngx_mcp_capture_listen(ngx_log_t *log, ngx_uint_t level,
    u_char *buf, size_t len);
static u_char *ngx_mcp_capture_text(u_char *buf, u_char *end, u_char **last);
static void ngx_mcp_capture_keep(ngx_mcp_capture_t *capture, u_char *p,
    u_char *last);
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


void
ngx_mcp_capture_beside(ngx_mcp_capture_t *capture, ngx_log_t *log,
    ngx_log_t *head, void **current, void *mine)
{
    capture->err = 0;
    capture->text[0] = '\0';
    capture->current = current;
    capture->mine = mine;

    *log = *head;

    head->log_level = ngx_max(head->log_level, NGX_LOG_ERR);
    head->writer = ngx_mcp_capture_listen;
    head->wdata = capture;
    head->next = log;
}


void
ngx_mcp_capture_end(ngx_mcp_capture_t *capture, ngx_log_t *log,
    ngx_log_t *head)
{
    if (head->wdata == capture) {
        head->log_level = log->log_level;
        head->writer = log->writer;
        head->wdata = log->wdata;
        head->next = log->next;
    }
}


ngx_uint_t
ngx_mcp_capture_refused(ngx_mcp_capture_t *capture)
{
    return capture->err == NGX_ECONNREFUSED || capture->err == NGX_ENOENT;
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
    case NGX_EADDRINUSE:
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
    u_char  *p, *last;

    p = ngx_mcp_capture_text(buf, buf + len, &last);

    if (level <= NGX_LOG_ALERT) {
        ngx_log_error(level, ngx_cycle->log, 0, "%*s, in an mcp keepalive",
                      last - p, p);
    }

    ngx_mcp_capture_keep(log->wdata, p, last);
}


static void
ngx_mcp_capture_listen(ngx_log_t *log, ngx_uint_t level, u_char *buf,
    size_t len)
{
    ngx_mcp_capture_t  *capture = log->wdata;

    u_char  *p, *last;

    if (level <= NGX_LOG_ERR && *capture->current == capture->mine) {
        p = ngx_mcp_capture_text(buf, buf + len, &last);
        ngx_mcp_capture_keep(capture, p, last);
    }
}


/* What was logged, without the head and the context of a line. */

static u_char *
ngx_mcp_capture_text(u_char *buf, u_char *end, u_char **last)
{
    u_char  *p, *cut;

    while (end > buf && (end[-1] == LF || end[-1] == CR)) {
        end--;
    }

    /* "date time [level] pid#tid: *number text" */

    p = ngx_strlchr(buf, end, ']');
    p = p ? ngx_strlchr(p, end, ':') : NULL;
    p = (p && end - p > 2) ? p + 2 : buf;

    if (*p == '*') {
        cut = ngx_strlchr(p, end, ' ');
        p = cut ? cut + 1 : p;
    }

    /* what is quoted may be an address with a secret in it */

    cut = ngx_strlchr(p, end, '"');
    end = cut ? cut : end;

    cut = ngx_strlcasestrn(p, end, (u_char *) " while ", 7 - 1);
    end = cut ? cut : end;

    while (end > p && (end[-1] == ' ' || end[-1] == ',')) {
        end--;
    }

    *last = end;

    return p;
}


static void
ngx_mcp_capture_keep(ngx_mcp_capture_t *capture, u_char *p, u_char *last)
{
    if (capture->text[0] == '\0') {
        ngx_cpystrn((u_char *) capture->text, p,
                    ngx_min((size_t) (last - p) + 1, NGX_MCP_CAPTURE_MAX));

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
