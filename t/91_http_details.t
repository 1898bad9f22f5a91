#!/usr/bin/perl

# HTTP around MCP: paths, Host, redirects, headers that come twice, DELETE, CORS,
# encodings, lengths.  One block a field case.

use lib 't/lib';
use MCP::Test;
use MCP::Exchange ();
use MCP::Fake ();
use MCP::Lost;

my $base = 'proxy_http_version 1.1; proxy_set_header Connection "";';

subtest B69 => \&paths_and_redirects;
subtest B70 => \&hosts;
subtest B72 => \&cors;
subtest B73 => \&any_location;
subtest B74 => \&deletes;
subtest B76 => \&many_streams;
subtest B77 => \&long_ids;
subtest B78 => \&sent_once;
subtest B79 => \&content_length;
subtest B81 => \&content_types;
subtest B82 => \&encodings;
subtest B51 => \&version_header;
subtest lengths => \&lengths;
finish();


# location name => its directives, all to one upstream

sub front {
    my ($fakes, $keepalive, %location) = @_;

    return nginx(
        fakes => $fakes,
        upstream => "mcp_keepalive zone=mcp:1m jitter=0% $keepalive;"
                  . ' mcp_keepalive_pass_header Authorization;'
                  . ' keepalive 4;',
        server => join "\n", map {
            "location /$_ { $base proxy_pass http://tools; $location{$_} }"
        } sort keys %location);
}


sub header { return join '|', MCP::Fake::values_of(@_) }


# The client's own last request and the first keepalive of its session.

sub pair {
    my ($fake, $c) = @_;

    my ($k) = wait_for(sub { ($fake->keepalives(session => $c->session))[0] },
                       3);
    my ($own) = reverse $fake->requests(keepalive => 0,
                                        session => $c->session);

    ok($k, "$c->{uri}: a keepalive");
    return ($own, $k // {});
}


# ---- B69 ----

sub paths_and_redirects {
    my ($fake, $elsewhere) = fakes(2);
    my $nginx = front([$fake], 'interval=150ms', p => '',
                      away => 'proxy_redirect off;');

    for my $uri ('/mcp', '/mcp/', '/p/a//b/', '/p?x=1', '/p/?a=%2F&b=+%20',
                 '/p/%7euser/%2fa', '/p/./x/../y', '/p/;v=1') {
        my $c = client($nginx, uri => $uri);

        $c->open_session(1);

        my ($own, $k) = pair($fake, $c);

        is($k->{uri}, $own->{uri}, 'goes to the same path');
        $c->delete_session;
    }

    for my $status (301, 302, 303, 307, 308) {
        my $c = client($nginx, uri => "/away/$status",
                       headers => [['Authorization', 'Bearer away']]);

        $fake->rule(when => { keepalive => 1, uri => "/away/$status" }, do => {
            status => $status, body => '', headers => [
                ['Location', 'http://' . $elsewhere->addr . '/mcp/']] });
        $c->open_session(1);
    }

    eventually(sub { $nginx->keepalives('misroute') >= 5 },
               '3xx is misroute');

    my $count = sub { scalar grep { $_->{uri} =~ m{^/away} }
                      $fake->keepalives };
    my $before = $count->();

    never(sub { $count->() > $before }, 'those sessions are asked no more',
          400);
    is($before, 5, 'each once');
    is($elsewhere->stats->{connections}, 0, 'no redirect is followed');
    is($nginx->peer($fake)->{state}, 'connected', 'that is no failure');
    is(scalar($nginx->log_lines(qr/\[warn\].*a redirect/)), 1, 'told once');
    return;
}


# ---- B70 ----

sub hosts {
    my $fake = fake();
    my $forwarded = join ' ', map { "proxy_set_header $_;" }
        'X-Forwarded-For $proxy_add_x_forwarded_for',
        'X-Forwarded-Proto $scheme', 'X-Forwarded-Host $host',
        'X-Forwarded-Port $server_port', 'X-Real-IP $remote_addr',
        'Host $http_host';
    my %location = (
        plain => '', same => 'proxy_set_header Host $http_host;',
        short => 'proxy_set_header Host $host;',
        fixed => 'proxy_set_header Host 127.0.0.1:8000;',
        name => 'proxy_set_header Host $server_name;',
        forwarded => $forwarded,
    );
    my $nginx = front([$fake], 'interval=150ms', %location,
                      map { $_ => 'proxy_set_header Host $http_host;' }
                      qw(h421 h403));

    for my $name (sort keys %location) {
        my $c = client($nginx, uri => "/$name", host => 'Tools.Example:8080');

        $c->open_session;
        $c->call('echo', ['Origin', 'http://tools.example'], ['Cookie', 'a=b']);

        my ($own, $k) = pair($fake, $c);
        my $names = sub { join ' ', sort map { lc $_->[0] }
                          grep { $_->[0] =~ /^x-/i } @{ $_[0]{headers} } };

        is(header($k, 'Host'), header($own, 'Host'), 'the same Host');
        is($names->($k), $names->($own), 'the same X- headers');
        is(header($k, $_), header($own, $_), $_)
            for qw(X-Forwarded-Proto X-Forwarded-Host X-Forwarded-Port);
        is(header($k, $_), '', "no $_") for qw(Origin Cookie);
        $c->delete_session;
    }

    $fake->rule(when => { keepalive => 1, uri => '/h421' }, do => {
        status => 421, type => 'text/plain', body => 'Invalid Host header' });
    $fake->rule(when => { keepalive => 1, uri => '/h403' },
                do => rpc_error(403, -32000, 'Invalid Host: tools.example'));
    $_->open_session(1) for map { client($nginx, uri => "/$_") }
                            qw(h421 h403);
    eventually(sub { $nginx->keepalives('misroute') == 2 },
               '421, and 403 about the host: misroute');
    return;
}


# ---- B72 ----

sub cors {
    my $fake = fake();
    my $star = 'add_header Access-Control-Allow-Origin * always;';
    my $nginx = front([$fake], 'interval=60s', bare => '', star => $star);

    for my $name (qw(bare star)) {
        my $c = client($nginx, uri => "/$name");

        $c->open_session(1);
        $fake->forget($c->session);
        $c->call;

        my $x = $c->call;
        my @origin = $x->header('Access-Control-Allow-Origin');

        is_lost($x, $name);
        is("@origin", $name eq 'star' ? '*' : '',
           'what nginx was told, and no more');

        my $before = $fake->requests(method => 'OPTIONS');

        $x = $c->request('OPTIONS', undef, ['Mcp-Session-Id', $c->session],
                         ['Origin', 'http://a.example']);
        isnt($x->body, LOST_BODY, 'OPTIONS is not answered by us');
        is(scalar $fake->requests(method => 'OPTIONS'), $before + 1,
           'but by the server');
    }

    # the server's own headers on an answer that is translated

    my $c = client($nginx, uri => '/bare');

    $c->open_session(1);
    $fake->rule(when => { session => $c->session, keepalive => 0 }, do => {
        %{ rpc_error(400, -32000, 'No valid session ID provided') },
        headers => [['Access-Control-Allow-Origin', 'http://a.example'],
                    ['Access-Control-Expose-Headers', 'Mcp-Session-Id'],
                    ['Vary', 'Origin']] });

    is_lost($c->call, 'translated',
            ['Access-Control-Allow-Origin', 'http://a.example'],
            ['Access-Control-Expose-Headers', 'Mcp-Session-Id'],
            ['Vary', 'Origin']);
    $fake->clear;

    # preflights are no use of a session

    my $busy = front([$fake], 'interval=200ms');

    $c = client($busy);
    $c->open_session(1);

    my $end = now_ms() + 700;

    while (now_ms() < $end) {
        $c->request('OPTIONS', undef, ['Mcp-Session-Id', $c->session]);
        pause_ms(30);
    }

    cmp_ok(scalar $fake->keepalives(session => $c->session), '>=', 2,
           'OPTIONS does not count as activity');
    return;
}


# ---- B73 ----

sub any_location {
    my @fakes = fakes(3);
    my $nginx = front(\@fakes, 'interval=60s', a => '', b => '');

    for (1 .. 6) {
        my $c = client($nginx, uri => '/a');

        $c->open_session(1);

        my $peer = $c->call->server;

        $c->{uri} = '/b/messages';
        is($c->call->server, $peer, 'pinned in another location, too')
            for 1 .. 3;
    }

    return;
}


# ---- B74 ----

sub deletes {
    my $fake = fake();
    my $nginx = front([$fake], 'interval=120ms');
    my %fate = (200 => 'gone', 202 => 'gone', 204 => 'gone', 404 => 'lost',
                405 => 'stopped', 501 => 'stopped', 400 => 'kept',
                403 => 'kept', 500 => 'kept', 503 => 'kept');
    my %client;

    for my $status (sort keys %fate) {
        my $c = $client{$status} = client($nginx);

        $c->open_session(1);
        $fake->rule(when => { method => 'DELETE', session => $c->session },
                    do => { status => $status, body => '', keep => 1 });

        my $x = $c->delete_session;

        is($x->status, $status, "DELETE: $status goes through");
    }

    my %asked = map { $_ => scalar $fake->keepalives(
                          session => $client{$_}->session) } keys %fate;

    pause_ms(500);

    for my $status (sort keys %fate) {
        my $id = $client{$status}->session;
        my $more = $fake->keepalives(session => $id) - $asked{$status};

        cmp_ok($more, $fate{$status} eq 'kept' ? '>=' : '<=',
               $fate{$status} eq 'kept' ? 2 : 1,
               "$status: " . ($fate{$status} eq 'kept'
                              ? 'keepalives go on' : 'no more keepalives'));
    }

    my $said = $nginx->upstream->{sessions};

    is("$said->{deleted} $said->{lost} $said->{active}", '3 1 6',
       'forgotten, lost and known');
    is_lost($client{404}->call, '404: its client is told');
    is($client{405}->call->status, 200, '405: the session works on');
    is(scalar(grep { $_->{method} eq 'DELETE' } $fake->requests), 10,
       'no DELETE of our own');
    return;
}


# ---- B76 ----

sub many_streams {
    my $fake = fake();
    my $nginx = front([$fake], 'interval=60s');
    my $c = client($nginx);

    $c->open_session(1);
    $c->get->abort;

    my $used = $nginx->status->{zones}{mcp}{used};
    my $before = $fake->stats;

    # one that is cut makes nginx ask the peer if it is well, once a second

    for (1 .. 60) {
        my $x = $c->get;

        $fake->drop(streams => 1);
        MCP::Exchange::drive([$x], timeout => 2);
    }

    my $after = $fake->stats;

    is(scalar $fake->requests(method => 'GET'), 61, 'each opened once');
    cmp_ok($after->{connections} - $before->{connections}, '<=', 66,
           'on a connection of its own at most');
    is($nginx->status->{zones}{mcp}{used}, $used, 'and leaves nothing');
    is($nginx->upstream->{sessions}{active}, 1, 'of one session');
    return;
}


# ---- B77 ----

sub long_ids {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=60s; keepalive 2;',
        server => 'large_client_header_buffers 4 16k;'
                . ' proxy_buffer_size 16k; proxy_buffers 8 16k;');
    my $all = join '', map { chr } 0x21 .. 0x7e;
    my @ids = ('x', $all, 'a' x 36, 'b' x 37, 'eyJ' . 'c' x 2000,
               'd' x 4095, 'e' x 4096);

    $fake->sessions(ids => [@ids, 'f' x 4097]);

    for my $id (@ids) {
        my $c = client($nginx);

        $c->open_session;
        is($c->session, $id, length($id) . ' bytes: issued');
        is($c->call->status, 200, 'used');
    }

    my $said = $nginx->status->{zones}{mcp};

    is("$said->{sessions} $said->{untracked}", '7 0', 'all are tracked');

    my $c = client($nginx);

    $c->open_session;
    is(length $c->session, 4097, 'one too long is issued');
    is($c->call->status, 200, 'and works');
    is($nginx->status->{zones}{mcp}{sessions}, 7, 'untracked');
    cmp_ok($nginx->status->{zones}{mcp}{untracked}, '>=', 1, 'and counted');
    unlike($nginx->fetch('/status')->body, qr/c{30}|d{30}|e{30}|f{30}/,
           'nor shown');

    # two of them are none

    my $double = client($nginx, session => $ids[2]);

    $double->call('echo', ['Mcp-Session-Id', 'second']);

    my ($seen) = reverse $fake->requests;

    is(header($seen, 'Mcp-Session-Id'), "$ids[2]|second",
       'a header that comes twice goes through');
    is($nginx->status->{zones}{mcp}{sessions}, 7, 'and is not tracked');
    return;
}


# ---- B78 ----

sub sent_once {
    my @fakes = fakes(3);
    my $nginx = front(\@fakes, 'interval=60s', n =>
                      'proxy_next_upstream error timeout http_500 http_503'
                      . ' http_404 non_idempotent;');
    my $c = client($nginx, uri => '/n');

    $c->open_session(1);

    for my $do ({ status => 500, body => '' }, { status => 503, body => '' },
                { close => 'before' }, { reset => 'header' }) {
        my $asked = sub { map { scalar $_->requests(rpc => 'tools/call') }
                          @fakes };
        my @before = $asked->();

        $_->rule(when => { rpc => 'tools/call' }, do => $do) for @fakes;
        $c->call;

        my @after = $asked->();
        my @more = grep { $_ } map { $after[$_] - $before[$_] } 0 .. 2;

        # nginx itself may find a connection of its pool dead

        is(scalar @more, 1, 'a POST of a session goes to one peer');
        cmp_ok($more[0], '<=', $do->{status} ? 1 : 2, 'and once');
        $_->clear for @fakes;
    }

    return;
}


# ---- B79 ----

sub content_length {
    my $fake = fake();
    my $nginx = front([$fake], 'interval=150ms',
                      plain => '', whole => 'proxy_request_buffering off;');

    for my $name (qw(plain whole)) {
        my $c = client($nginx, uri => "/$name");

        $c->open_session(1);

        my (undef, $k) = pair($fake, $c);

        is(header($k, 'Content-Length'), length $k->{body},
           'it has a Content-Length');
        is(header($k, 'Transfer-Encoding'), '', 'and is not chunked');
        is(header($k, 'Expect'), '', 'nor asks first');
    }

    return;
}


# ---- B81 ----

sub content_types {
    my $fake = fake();
    my %type = (plain => 'application/json;charset=utf-8',
                upper => 'APPLICATION/JSON ; Charset=UTF-8',
                spaced => "application/json ;\tcharset=utf-8",
                stream => 'Text/Event-Stream; charset=UTF-8');
    my $nginx = front([$fake], 'interval=150ms', map { $_ => '' } keys %type);

    for my $name (sort keys %type) {
        my $c = client($nginx, uri => "/$name");

        $fake->rule(when => { uri => "/$name" }, do => {
            type => $type{$name}, $name eq 'stream' ? (mode => 'sse') : () });
        is($c->initialize->header('Content-Type'), $type{$name}, $type{$name});
        $c->initialized;
        $c->call;

        my (undef, $k) = pair($fake, $c);

        is(header($k, 'Content-Type'), 'application/json', 'ours has no more');
    }

    eventually(sub { $nginx->keepalives('ok') >= 8 }, 'all are ok');
    is($nginx->keepalives('broken_reply') + $nginx->keepalives('misroute'), 0,
       'none is taken for something else');
    return;
}


# ---- B82 ----

sub encodings {
    my $fake = fake();
    my %do = (gzip => { type => 'application/json', body => "\x1f\x8b\x08xx",
                        headers => [['Content-Encoding', 'gzip']] },
              br => { type => 'application/json', body => 'xx',
                      headers => [['Content-Encoding', 'br']] },
              identity => { headers => [['Content-Encoding', 'identity']] });
    my $nginx = front([$fake], 'interval=150ms',
                      map({ $_ => '' } keys %do),
                      zip => 'gzip on; gzip_types *; gzip_min_length 1;');

    for my $name (sort keys %do) {
        my $c = client($nginx, uri => "/$name");

        $fake->rule(when => { keepalive => 1, uri => "/$name" },
                    do => $do{$name});
        $c->open_session(1);

        my (undef, $k) = pair($fake, $c);

        is(header($k, 'Accept-Encoding'), 'identity', 'asked for plain');
    }

    eventually(sub { $nginx->keepalives('broken_reply') >= 6
                     && $nginx->keepalives('ok') >= 2 },
               'an encoded answer is none, identity is no encoding');
    is($nginx->peer($fake)->{state}, 'connected', 'that is no failure');

    # an encoded answer to a client is not looked into

    my $c = client($nginx, uri => '/gzip');

    $c->open_session(1);

    my $body = rpc_error(404, -32001, 'Session not found');

    $fake->rule(when => { keepalive => 0, session => $c->session }, do => {
        status => 400, type => 'application/json', body => "\x1f\x8b\x08zz",
        headers => [['Content-Encoding', 'gzip']] });

    my $x = $c->call;

    is($x->status . $x->body, "400\x1f\x8b\x08zz", 'it goes on as it is');
    $fake->clear;

    # our own where nginx compresses

    $c = client($nginx, uri => '/zip',
                headers => [['Accept-Encoding', 'gzip']]);
    $c->open_session(1);
    $fake->forget($c->session);
    $c->call;
    $x = $c->call;
    is($x->status, 404, 'our 404 beside gzip');
    is($x->header('Content-Encoding') // '', 'gzip', 'is compressed by nginx');
    return;
}


# ---- B51 ----

sub version_header {
    my $fake = fake();
    my $nginx = front([$fake], 'interval=150ms');
    my @v = map { ['MCP-Protocol-Version', $_] } qw(2025-03-26 2025-11-25);

    for my $case ([none => '', []], [one => '2025-11-25', [$v[1]]],
                  [two => '', \@v], [long => '', [['MCP-Protocol-Version',
                                                   '2025' x 5]]]) {
        my ($name, $want, $headers) = @$case;
        my $c = client($nginx, uri => "/mcp/$name", version => undef,
                       headers => $headers);

        $c->open_session(1);

        my (undef, $k) = pair($fake, $c);

        is(header($k, 'MCP-Protocol-Version'), $want, "$name: repeated");
    }

    return;
}


# ---- lengths that do not fit ----

sub lengths {
    my $fake = fake();
    my $answer = '{"jsonrpc":"2.0","id":0,"result":{}}';
    my $n = length $answer;
    my $head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    my %raw = (
        twice => "${head}Content-Length: $n\r\nContent-Length: 5\r\n\r\n"
               . $answer,
        both => "${head}Content-Length: $n\r\nTransfer-Encoding: chunked\r\n"
              . "\r\n" . sprintf("%x\r\n%s\r\n0\r\n\r\n", $n, $answer),
        nonsense => "${head}Content-Length: many\r\n\r\n$answer",
        negative => "${head}Content-Length: -1\r\n\r\n$answer",
        longer => $head . 'Content-Length: ' . ($n + 9) . "\r\n\r\n$answer",
        shorter => "${head}Content-Length: 9\r\n\r\n$answer",
        chunk => "${head}Transfer-Encoding: chunked\r\n\r\nzz\r\n$answer",
    );

    # some nginx refuse what others forgive; a result that is in counts

    my %fine = (twice => qr/^(?:broken_reply|peer_down)$/,
                both => qr/^(?:|peer_down)$/, nonsense => qr/^(?:|peer_down)$/,
                negative => qr/^(?:|peer_down)$/, longer => qr/^$/,
                shorter => qr/^broken_reply$/, chunk => qr/^peer_down$/);

    for my $name (sort keys %raw) {
        my $nginx = front([$fake], 'interval=150ms failures=100');
        my $c = client($nginx, uri => "/mcp/$name");

        $fake->rule(when => { keepalive => 1, uri => "/mcp/$name" }, times => 2,
                    do => { raw => $raw{$name} });
        $c->open_session(1);
        eventually(sub { $nginx->keepalives('ok') >= 1 },
                   "$name: the next is ok");

        my $peer = $nginx->peer($fake);
        my %count = %{ $peer->{keepalives} };

        delete @count{qw(sent bytes ok)};
        like(join(' ', grep { $count{$_} } sort keys %count), $fine{$name},
             "$name: its verdict");
        is($c->call->status, 200, 'the client is served');
        is($nginx->upstream->{sessions}{lost}, 0, 'nothing is lost');
        $nginx->stop;
    }

    return;
}
