
/*
 * Copyright (C) ngx_mcp_keepalive_module contributors
 */


#include "tap.h"
#include "mcp_accept.h"


#define J  MCP_FORMAT_JSON
#define P  MCP_FORMAT_PROMETHEUS
#define H  MCP_FORMAT_HTML


static const struct {
    const char         *value;
    mcp_format_t        format;
} cases[] = {
    { "*/*", J },
    { "", J },
    { ",", J },
    { ";", J },
    { " , ;q=1,", J },
    { "text/*", J },
    { "image/png", J },
    { "application/json", J },
    { "application/json, text/html", J },
    { "text/html, application/json", H },
    { "text/html;q=0.5, application/json", J },
    { "TEXT/HTML", H },
    { "application/xhtml+xml", H },
    { "text/plain", P },
    { "text/plain; version=0.0.4", P },
    { "text/plain ; version=0.0.4 ; Q=0.3, text/html;q=0.2", P },
    { "application/openmetrics-text", P },
    { "text/htmlx", J },
    { "text/htm", J },

    /* a browser's, and Prometheus 2.42's */

    { "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,"
      "*/*;q=0.8", H },
    { "application/openmetrics-text;version=1.0.0,"
      "application/openmetrics-text;version=0.0.1;q=0.75,"
      "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", P },

    /* weights */

    { "text/html;q=0", J },
    { "text/html;q=0.000, text/plain;q=0.001", P },
    { "text/html;q=1.000, text/plain;q=1", H },
    { "text/html;q=0.1, text/plain;q=0.11", P },
    { "text/html;q=0.9, text/plain;q=9", P },
    { "text/html;q=0.9, text/plain;q=x", P },
    { "text/html;q=0.9, text/plain;q=0.12345", P },
    { "text/html;q=0.9, text/plain;q=", P },
    { "text/html;q=0.9;, text/plain;q", P },
    { "text/html\t;\tq=0.9\t,\ttext/plain;q=0.1", H }
};


int
main(void)
{
    size_t  i, n, len;
    char   *edge;

    is_int(mcp_accept(NULL, 0), J, "no header");

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {

        len = strlen(cases[i].value);
        edge = (char *) tap_edge(cases[i].value, len);

        is_int(mcp_accept(edge, len), cases[i].format, cases[i].value);
    }

    /* cut anywhere: whatever it says, it stays within its bytes */

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {

        len = strlen(cases[i].value);

        for (n = 0; n < len; n++) {
            edge = (char *) tap_edge(cases[i].value, n);

            if ((unsigned) mcp_accept(edge, n) > H) {
                break;
            }
        }

        is_int(n, len, "cut");
    }

    return tap_done();
}
