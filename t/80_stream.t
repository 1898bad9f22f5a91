#!/usr/bin/perl

# Event streams on their way to the client: which answers are streams, what is
# added to them and when, and that nothing else is changed.

use lib 't/lib';
use MCP::Test;

use Compress::Raw::Zlib ();
use MCP::Util qw(json_text);

my $beat = ":\n\n";
my $ka = 'mcp_keepalive zone=mcp:1m interval=off;';
my $fake = fake();

recognized();
first_heartbeat();
due();
boundaries();
not_there();
forms();
gzip();
http2();
timeouts();
dead_client();
counts();
inherited();
finish();


# ---- helpers ----

sub up {
    my (%parts) = @_;

    $fake->clear;

    return nginx(fakes => [$fake], upstream => $ka, %parts);
}


sub down {
    my ($nginx) = @_;

    $nginx->stop;
    return;
}


# The bytes of an answer; the body in chunks that are cut as the list is, with
# times in ms between them.

sub head {
    my (%h) = @_;

    my $type = delete $h{type} // 'text/event-stream';
    my $status = delete $h{status} // '200 OK';

    return "HTTP/1.1 $status\r\nContent-Type: $type\r\n"
           . join('', map { "$_: $h{$_}\r\n" } sort keys %h);
}


sub chunked {
    my (@body) = @_;

    return map { /^\d+$/ ? [$_] : sprintf("%x\r\n%s\r\n", length $_, $_) } @body;
}


sub stream {
    my ($head, @body) = @_;

    my $first = $body[0] =~ /^\d+$/ ? '' : (chunked(shift @body))[0];

    return [$head . "Transfer-Encoding: chunked\r\n\r\n" . $first,
            chunked(@body), "0\r\n\r\n"];
}


# Everything a client got, once it is over or the condition holds.

sub body_when {
    my ($x, $cond, $timeout) = @_;

    MCP::Exchange::drive([$x], timeout => $timeout // 5,
                         until => sub { $cond && $cond->($x->body) });
    return $x->body;
}


sub beats { my ($body) = @_; return scalar(() = $body =~ /:\n\n/g) }


sub without { my ($body) = @_; return $body =~ s/:\n\n//gr }


# ---- what a stream is ----

# The first event comes at once although buffering is on, and so do heartbeats;
# or both do not.

sub recognized {
    my $nginx = up(
        location => 'proxy_buffering on; mcp_heartbeat 200ms;',
        proxy => 'proxy_pass http://tools; proxy_http_version 1.1;'
               . ' proxy_set_header Connection "";');
    my $event = "data: 1\n\n";

    for my $type ('text/event-stream', 'Text/Event-Stream',
                  'text/event-stream; charset=utf-8',
                  'text/event-stream ;x="a;b"', 'TEXT/EVENT-STREAM;')
    {
        $fake->rule(do => { raw => stream(head(type => $type), $event, 700) });

        my $x = client($nginx)->start_get;
        my $body = body_when($x, sub { beats($_[0]) >= 2 });

        is(without($body), $event, "$type: passed at once");
        cmp_ok(beats($body), '>=', 2, "$type: heartbeats");
        body_when($x);
        is(without($x->body), $event, "$type: and nothing else is added");
    }

    for my $case (['text/plain', head(type => 'text/plain')],
                  ['text/event-streams', head(type => 'text/event-streams')],
                  ['no type', "HTTP/1.1 200 OK\r\n"],
                  ['status 500', head(status => '500 No')],
                  ['status 201', head(status => '201 Made')])
    {
        my ($name, $head) = @$case;

        $fake->rule(do => { raw => stream($head, $event, 500) });

        my $x = client($nginx)->start_get;

        body_when($x);
        is($x->body, $event, "$name: no heartbeats");
    }

    $fake->rule(do => { raw => head() . "Connection: close\r\n\r\n" });

    my $x = client($nginx)->request('HEAD');

    is($x->status . $x->body, '200', 'HEAD: nothing is added');

    return down($nginx);
}


# ---- heartbeats ----

sub first_heartbeat {
    my $nginx = up(location => 'mcp_heartbeat 30s;');
    my $c = client($nginx);

    $c->open_session(1);

    my $x = $c->start_get;

    is(body_when($x, sub { length $_[0] }, 2), $beat,
       'a notification stream that starts silent: one at once');
    $x->abort;

    $fake->rule(times => 1, do => {
        raw => stream(head(), "data: 1\n\n", 200) });
    $x = $c->start_get;
    is(body_when($x), "data: 1\n\n", 'not if the server says something');

    $fake->rule(times => 1, do => {
        raw => stream(head(), 200, "data: 1\n\n") });
    $x = $c->start_call;
    is(body_when($x), "data: 1\n\n", 'nor in the answer to a call');

    my @listen = (['MCP-Protocol-Version', '2026-07-28'],
                  ['Mcp-Method', 'subscriptions/listen']);

    $fake->rule(times => 4, do => {
        raw => stream(head(), 200, "data: 1\n\n") });

    $c = client($nginx);
    $x = $c->start_rpc('subscriptions/listen', {}, @listen);
    is(body_when($x), "${beat}data: 1\n\n", 'subscriptions/listen: one');

    $listen[0][1] = '2025-11-25';
    $x = $c->start_rpc('subscriptions/listen', {}, @listen);
    is(body_when($x), "data: 1\n\n", '... not in a version with sessions');

    $listen[0][1] = '2026-07-28';
    $x = $c->start_rpc('subscriptions/listen', {}, $listen[0]);
    is(body_when($x), "data: 1\n\n", '... not without Mcp-Method');

    $listen[1][1] = 'tools/call';
    $x = $c->start_rpc('tools/call', {}, @listen);
    is(body_when($x), "data: 1\n\n", '... not in the answer to a modern call');

    return down($nginx);
}


# Only when nothing was sent for the interval.

sub due {
    my $nginx = up(location => 'mcp_heartbeat 300ms;');
    my $c = client($nginx);

    $c->open_session(1);

    for my $how ('events', 'pings') {
        my $text = $how eq 'pings' ? ": ping\n\n" : "data: 1\n\n";

        $fake->rule(times => 1, do => {
            raw => stream(head(), $text, map { (120, $text) } 1 .. 10) });

        my $x = $c->start_get;

        is(beats(body_when($x)), 0, "none beside the server's own $how");
    }

    $fake->rule(times => 1, do => {
        raw => stream(head(), 950, "data: 1\n\n") });

    my $x = $c->start_call;
    my $body = body_when($x);
    my $most = 3;

    like($body, qr/^(?::\n\n){2,$most}data: 1\n\n$/,
         'in the answer to a call: one an interval');

    $fake->rule(times => 1, do => {
        raw => [head() . "Content-Length: 9\r\n\r\n", [700], "data: 1\n\n"] });
    $x = $c->start_call;
    is(body_when($x), "data: 1\n\n", 'none if the length is known');
    is($x->header('Content-Length'), 9, 'which stays');

    return down($nginx);
}


sub boundaries {
    my $nginx = up(location => 'mcp_heartbeat 100ms;');
    my $c = client($nginx);

    $c->open_session(1);

    # [what came, may a heartbeat follow]

    my @cases = (
        ["data: 1\n\n", 1], ["data: 1\r\n\r\n", 1], ["data: 1\r\r", 1],
        ["data: 1\n\r\n", 1], ["data: 1\r\n\n", 1],
        ["data: 1\n", 0], ["data: 1", 0], ["data: 1\r\n", 0],
        ["data: 1\n\r", 0], ["data: 1\r\n\r", 0], ["data: 1\r", 0],
        [": a comment\n", 0], [": a comment\n\n", 1], ["id: 7\n", 0],
        ["data: 1\n\ndata: 2\n\n: x", 0], ["\xef\xbb\xbf", 1],
        ["\xef\xbb", 0], ["data: \xe2\x80\xa8\n", 0], ["event: x\n\n", 1],
    );

    my @x;

    for my $case (@cases) {
        $fake->rule(times => 1, do => {
            raw => stream(head(), $case->[0], 450, "\ndata: 9\n\n") });

        my $x = $c->start_get;

        MCP::Exchange::drive([$x], until => sub { length $x->body });
        push @x, $x;
    }

    MCP::Exchange::drive(\@x);

    for my $i (0 .. $#cases) {
        my ($text, $may) = @{ $cases[$i] };
        my $name = $text =~ s/\r/\\r/gr =~ s/\n/\\n/gr =~ s/[^ -~]/./gr;
        my $body = $x[$i]->body;

        is(without($body), $text . "\ndata: 9\n\n", "$name: not changed");

        my $found = $body =~ /^\Q$text\E(?::\n\n){2,}\ndata: 9/ ? 1 : 0;

        is($found, $may, "$name: " . ($may ? 'heartbeats' : 'none'));
    }

    return down($nginx);
}


# No heartbeats into what cannot take any.

sub not_there {
    my $nginx = up(
        http => 'proxy_cache_path %%dir%%/cache keys_zone=cache:1m;',
        server => 'location /cached { proxy_pass http://tools;'
                . ' proxy_cache cache; proxy_cache_valid 1m;'
                . ' mcp_heartbeat 100ms; }'
                . 'location /sub { proxy_pass http://tools;'
                . ' mcp_heartbeat 100ms; add_after_body /mcp/more; }'
                . 'location /off { proxy_pass http://tools;'
                . ' mcp_heartbeat off; }',
        location => 'mcp_heartbeat 100ms;');
    my $event = "data: 1\n\n";

    for my $coding ('gzip', 'br', 'zstd', 'deflate, gzip') {
        $fake->rule(times => 1, do => {
            raw => stream(head('Content-Encoding' => $coding), $event, 300) });
        is(body_when(client($nginx)->start_get), $event,
           "compressed by the server, $coding: none");
    }

    $fake->rule(times => 1, do => {
        raw => stream(head('Content-Encoding' => 'identity'), $event, 300) });
    cmp_ok(beats(body_when(client($nginx)->start_get)), '>', 0, 'identity: some');

    $fake->rule(do => { raw => stream(head(), $event, 300) });
    is(body_when(client($nginx, uri => '/off')->start_get), $event,
       'mcp_heartbeat off: none');

    for my $n (1, 2) {
        is(body_when(client($nginx, uri => '/cached')->start_get), $event,
           $n == 1 ? 'to be cached: none' : 'from the cache: none');
    }

    return down($nginx);
}


# HTTP/1.0, and 1.1 with chunks and without; the connection can be used again.

sub forms {
    my $nginx = up(
        location => 'mcp_heartbeat 100ms;',
        server => 'location /plain { proxy_pass http://tools;'
                . ' mcp_heartbeat 100ms; chunked_transfer_encoding off; }');
    my $text = "data: 1\n\ndata: 2\n\n";

    $fake->rule(do => {
        raw => stream(head(), "data: 1\n\n", 350, "data: 2\n\n") });

    for my $case (['HTTP/1.0', '/mcp', 'close'], ['HTTP/1.1', '/mcp', 'chunked'],
                  ['HTTP/1.1', '/plain', 'close'])
    {
        my ($version, $uri, $framing) = @$case;
        my $x = MCP::Exchange->new(
            port => $nginx->port,
            bytes => "GET $uri $version\r\nHost: tools.example\r\n\r\n");
        my $body = body_when($x);

        ok(!$x->{failed}, "$version $uri: a proper end");
        is($x->{http}{framing}, $framing, "$version $uri: $framing");
        is(without($body), $text, "$version $uri: the server's bytes");
        like($body, qr/^data: 1\n\n(?::\n\n){2,}data: 2\n\n$/,
             "$version $uri: heartbeats between");
    }

    my $c = client($nginx, keepalive => 1);

    $c->wait($c->start_get);

    my $fh = $c->{fh};

    ok($fh, 'the connection stays open');
    $c->wait($c->start_get);
    is(fileno $c->{fh}, fileno $fh, 'and is used again');

    # a server that speaks 1.0

    $fake->rule(times => 1, do => {
        raw => [head() . "\r\ndata: 1\n\n", [350], "data: 2\n\n"] });
    like(body_when(client($nginx)->start_get),
         qr/^data: 1\n\n(?::\n\n){2,}data: 2\n\n$/,
         'a server that ends by closing');

    return down($nginx);
}


sub gzip {
    my $nginx = up(location => 'mcp_heartbeat 100ms; gzip on;'
                             . ' gzip_types text/event-stream;'
                             . ' gzip_min_length 0; gzip_proxied any;');
    my $c = client($nginx);

    $fake->rule(do => {
        raw => stream(head(), "data: 1\n\n", 500, "data: 2\n\n") });

    my ($z) = Compress::Raw::Zlib::Inflate->new(
        -WindowBits => Compress::Raw::Zlib::WANT_GZIP());
    my $x = $c->start_get(['Accept-Encoding', 'gzip']);
    my ($text, $used) = ('', 0);
    my $read = sub {
        my $more = substr $x->body, $used;

        $used += length $more;
        $z->inflate($more, my $out) if length $more;
        $text .= $out // '';
        return $text;
    };

    body_when($x, sub { beats($read->()) >= 2 });
    is($x->header('Content-Encoding'), 'gzip', 'gzip: by nginx');
    like($text, qr/^data: 1\n\n(?::\n\n){2,}$/,
         'gzip: heartbeats reach the client');
    body_when($x);
    $read->();
    is(without($text), "data: 1\n\ndata: 2\n\n", 'gzip: not changed');

    return down($nginx);
}


sub http2 {
  SKIP: {
    skip('no nghttp', 2) unless grep { -x "$_/nghttp" } split /:/, $ENV{PATH};

    my $nginx = up(listen => 'http2', location => 'mcp_heartbeat 100ms;');

    $fake->rule(do => {
        raw => stream(head(), "data: 1\n\n", 500, "data: 2\n\n") });

    my $url = 'http://127.0.0.1:' . $nginx->port . '/mcp';
    my $text = `nghttp --timeout=5 $url 2>&1`;

    is(without($text), "data: 1\n\ndata: 2\n\n", 'HTTP/2: not changed');
    like($text, qr/^data: 1\n\n(?::\n\n){2,}data: 2\n\n$/,
         'HTTP/2: heartbeats between');

    down($nginx);
  }

    return;
}


# ---- time and end ----

# proxy_read_timeout does not end a notification stream, nor a call of ten times
# its length; mcp_stream_timeout does, and says so.

sub timeouts {
    my $nginx = up(location => 'proxy_read_timeout 200ms;'
                             . ' mcp_heartbeat 100ms;',
                   server => 'location /short { proxy_pass http://tools;'
                           . ' mcp_stream_timeout 700ms; proxy_read_timeout 1h;'
                           . ' mcp_heartbeat 100ms;'
                           . ' proxy_http_version 1.1; }');

    my $c = client($nginx);

    $c->open_session(1);

    my $x = $c->start_get;

    $fake->rule(times => 1, when => { rpc => 'tools/call' }, do => {
        raw => stream(head(), 2000, "data: 1\n\n") });

    my $call = $c->start_call;

    MCP::Exchange::drive([$x, $call], timeout => 5,
                         until => sub { $call->over });
    is(without($call->body), "data: 1\n\n",
       'a call that is silent for ten times proxy_read_timeout');
    ok(!$x->over, 'a notification stream that is, too');
    is(without($x->body), '', 'gets nothing but heartbeats');
    $x->abort;

    $c = client($nginx, uri => '/short');
    $c->open_session(1);
    $x = $c->start_get;

    my $body = body_when($x);

    ok(!$x->{failed}, 'mcp_stream_timeout: a proper end');
    like($body, qr/^(?::\n\n)+retry: 1000\n\n$/, '... with a retry');
    cmp_ok($x->ms, '>=', 650, '... not before');

    my @lines = $nginx->log_lines(qr/the server was silent for (\d+) ms/);

    is(scalar @lines, 1, '... and a line in the log');
    like($lines[0] // '', qr/\[warn\].*mcp upstream "tools" peer "\Q@{[
                              $fake->addr ]}\E": notification stream/,
         '... that names the upstream and the peer');
    eventually(sub { $nginx->upstream->{streams}{timed_out} == 1 },
               '... is counted');

    return down($nginx);
}


# A client whose end nobody told nginx of is found by a heartbeat; one that
# closes, at once.

sub dead_client {
    my $nginx = up(location => 'mcp_heartbeat 30s;',
                   server => 'location /ignored { proxy_pass http://tools;'
                           . ' proxy_ignore_client_abort on;'
                           . ' mcp_heartbeat 200ms; }');
    my $c = client($nginx);

    $c->open_session(1);

    my $x = $c->get;
    my $open = sub { return $fake->stats->{open} };

    my $before = $open->();
    my $from = now_ms();

    $x->abort;
    eventually(sub { $open->() == $before - 1 },
               'the client has left: so do we');
    cmp_ok(now_ms() - $from, '<', 150 * slow(), '... at once');

    $c->{uri} = '/ignored';
    $x = $c->get;
    $before = $open->();
    $x->abort(reset => 1);
    eventually(sub { $open->() == $before - 1 },
               'a heartbeat that cannot be written: the client has left', 3);
    eventually(sub { $nginx->upstream->{streams}{open} == 0 },
               'no stream is open');

    return down($nginx);
}


sub counts {
    my $nginx = up(location => 'mcp_heartbeat 200ms;', workers => 2);
    my @clients = clients($nginx, 6);
    my $streams = sub { return $nginx->upstream->{streams} };

    each_client(\@clients, [qw(initialize initialized)]);

    my @x = map { $_->get } @clients;

    eventually(sub { $streams->()->{open} == 6 }, 'six are open');
    is($streams->()->{opened}, 6, 'six were opened');
    is($nginx->peer($fake)->{streams}, 6, 'all of one peer');
    eventually(sub { $streams->()->{heartbeats} >= 6 }, 'heartbeats');

    $_->abort for splice @x, 0, 2;
    eventually(sub { $streams->()->{open} == 4 }, 'two have left');

    # a killed worker has no streams

    my ($pid) = $nginx->workers;
    my $gone = sub {
        MCP::Exchange::drive(\@x, timeout => 0.1);
        return scalar grep { $_->over } @x;
    };

    $nginx->kill_worker($pid);
    wait_for(sub { !grep { $_ == $pid } $nginx->workers });

    my $left = @x - $gone->();

    eventually(sub { $streams->()->{open} == $left },
               "kill -9 of a worker: $left of 4 are open", 8);
    is($nginx->peer($fake)->{streams}, $left, '... of the peer, too');
    is($streams->()->{opened}, 6, 'what was counted stays');
    $_->abort for @x;
    eventually(sub { $streams->()->{open} == 0 }, 'none is left');

    return down($nginx);
}


# http, server and location, as any directive of nginx.

sub inherited {
    my $nginx = up(
        http => 'mcp_heartbeat 100ms; mcp_stream_timeout 400ms;',
        server => 'mcp_heartbeat off;'
                . ' location /on { proxy_pass http://tools;'
                . ' proxy_http_version 1.1; mcp_heartbeat 100ms; }');

    for my $case (['/mcp', qr/^retry: 1000\n\n$/],
                  ['/on', qr/^(?::\n\n){3,}retry: 1000\n\n$/])
    {
        my $c = client($nginx, uri => $case->[0]);

        $c->open_session(1);
        like(body_when($c->start_get), $case->[1], "inherited: $case->[0]");
    }

    return down($nginx);
}
