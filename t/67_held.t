#!/usr/bin/perl

# Answers that are held until they are judged: what other filters, cut headers
# and proxy_intercept_errors make of them.

use lib 't/lib';
use MCP::Lost;
use MCP::Test;

my $fake = fake();

my $json = [['Content-Type', 'application/json']];
my $lost = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,'
         . '"message":"Bad Request: No valid session ID provided"}}';
my $unknown = '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,'
            . '"message":"Method not found"}}';

my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";'
          . ' proxy_set_header Host $http_host; proxy_pass http://';

# a name, what stands in both the module's location and the stock one

my %location = (
    plain => '', ranges => 'proxy_force_ranges on;',
    charset => 'charset bb; source_charset aa;'
             . ' charset_types application/json;',
    caught => 'proxy_intercept_errors on; error_page 400 404 = /page;',
);

my $nginx = nginx(
    fakes => [$fake],
    upstream => 'mcp_keepalive zone=mcp:1m interval=off;',
    http => 'upstream stock { server %%fake1%%; }'
          . ' charset_map aa bb { 53 54; }',
    server => 'location = /page { return 200 "page"; }'
            . join '', map { "location /$_ { $location{$_} ${proxy}tools; }"
                           . "location /stock_$_ { $location{$_}"
                           . " ${proxy}stock; }" } sort keys %location);


# ---- a part of an answer ----

{
    my $c = opened('ranges', keepalive => 1);

    answers($c, { raw => http_text('200 OK', $json, '{"jsonrpc":"2.0"}') });

    my $x = $c->wait($c->start_get(['Range', 'bytes=0-4']));

    is($x->status, 206, 'a range');
    is($x->body, '{"jso', 'no more than that');
    is_same($x, stock($c)->wait(stock($c)->start_get(['Range', 'bytes=0-4'])),
            'a range');
}


# ---- a filter that writes into what it is given ----

{
    my $c = opened('charset');

    answers($c, { raw => http_text('400 No', $json, $lost) });

    for my $n (1, 2) {
        my $x = $c->call;

        is($x->status, 404, "recoded: 404, $n");
        like($x->body, qr/"message":"Tession not found"/, "recoded, $n");
    }
}


# ---- nginx's own page after a header that was cut ----

for my $status ('404 Not Found', '200 OK') {
    my $c = opened('plain');

    answers($c, { raw => "HTTP/1.1 $status\r\nContent-Type: "
                       . "application/json\r\n" }, times => 1);

    is($c->call->status, 502, "$status, cut: nginx's own answer");
    is($c->call->status, 200, "$status, cut: the session lives on");
}

{
    my $c = client($nginx, uri => '/plain');

    $fake->rule(when => { rpc => 'initialize' }, times => 1,
                do => { raw => "HTTP/1.1 200 OK\r\nMcp-Session-Id: half-1\r\n"
                             . "Content-Type: application/json\r\n" });

    my $before = $nginx->upstream->{sessions}{learned};

    is($c->initialize->status, 502, 'initialize, cut: 502');
    is($nginx->upstream->{sessions}{learned}, $before, 'and nothing learned');
}


# ---- proxy_intercept_errors ----

my $trailer = http_text('400 No', $json, '{"no":1}', 'chunked')
              =~ s/0\r\n\r\n$/0\r\nX: 1\r\n\r\n/r;
my $extension = http_text('400 No', $json, '{"no":1}', 'chunked')
                =~ s/0\r\n\r\n$/0;a=b\r\n\r\n/r;

for my $case (['trailers', $trailer], ['an extension', $extension],
              ['no method, chunked',
               http_text('404 Not Found', $json, $unknown, 'chunked')],
              ['no method', http_text('404 Not Found', $json, $unknown)])
{
    my ($name, $text) = @$case;
    my $c = opened('caught');

    answers($c, { raw => $text });

    my $from = now_ms();
    my $x = $c->call;

    is($x->body, 'page', "$name: the error page");
    cmp_ok(now_ms() - $from, '<', 2000, "$name: at once");
}

# split in the middle of the words, by the chunks and by the packets

{
    my $c = opened('caught');
    my ($a, $b) = $lost =~ /^(.*No valid )(.*)$/;

    answers($c, { raw => ["HTTP/1.1 400 No\r\nContent-Type: application/json"
                          . "\r\nTransfer-Encoding: chunked\r\n\r\n",
                          sprintf("%x\r\n%s\r\n", length $a, $a),
                          sprintf("%x\r\n%s\r\n0\r\n\r\n", length $b, $b)],
                  pause => 20 });

    is_lost($c->call, 'in chunks');
}

finish();


sub opened {
    my ($name, %more) = @_;

    my $c = client($nginx, uri => "/$name", %more);

    $c->open_session(1);
    return $c;
}


sub stock {
    my ($c) = @_;

    return client($nginx, %$c, uri => $c->{uri} =~ s{^/}{/stock_}r,
                  fh => undef);
}


sub answers {
    my ($c, $do, %more) = @_;

    return $fake->rule(do => $do, when => { session => $c->session }, %more);
}
