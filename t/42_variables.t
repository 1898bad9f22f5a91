#!/usr/bin/perl

# The $mcp_* variables: in the access log, in headers, as a limit's key.

use lib 't/lib';
use MCP::Fake ();
use MCP::Test;
use MIME::Base64 qw(encode_base64);

my @names = qw(mark session version method name peer state verdict);
my $format = join '|', '$http_x_mark', map { "\$mcp_$_" }
             qw(session protocol_version method name peer peer_state verdict);

# by which a request finds its line; all clients send it

my $mark = ['X-Mark', 0];
my $timeout = 1000 * slow() . 'ms';

my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";'
          . ' proxy_set_header Host $http_host;';

my $fake = fake();
my $dead = fake();
my $moody = fake();

$dead->kill;

my $nginx = nginx(
    fakes => [$fake, $dead, $moody], servers => [$fake->addr], workers => 2,
    http => "log_format mcp '$format';"
          . 'limit_req_zone $mcp_session zone=sessions:1m rate=1r/m;'
          . 'client_body_buffer_size 256k; client_max_body_size 1m;'
          . 'upstream plain { server %%fake1%%; }'
          . 'upstream two { server %%fake1%%;'
          . ' mcp_keepalive zone=second:64k interval=off; }'
          . 'upstream revived { server %%fake3%%;'
          . ' mcp_keepalive zone=mcp interval=off; mcp_revive on; }'
          . 'upstream gone { server %%fake2%%;'
          . ' mcp_keepalive zone=mcp interval=off; }',
    upstream => 'mcp_keepalive zone=mcp:1m interval=off timeout=' . $timeout . ';',
    location => 'access_log %%dir%%/access.log mcp;'
              . 'add_header X-Session $mcp_session always;'
              . 'add_header X-Peer $mcp_peer-$mcp_peer_state always;'
              . 'proxy_read_timeout ' . $timeout . ';',
    server => 'access_log %%dir%%/access.log mcp;'
            . "location /limited { limit_req zone=sessions burst=1 nodelay;"
            . " $proxy proxy_pass http://tools; }"
            . "location /two { $proxy proxy_pass http://two; }"
            . "location /gone { $proxy proxy_pass http://gone; }"
            . "location /revived { $proxy proxy_pass http://revived;"
            . ' proxy_set_header X-Digest $mcp_session; }'
            . "location /plain { $proxy proxy_pass http://plain; }"
            . "location /file { client_body_in_file_only clean;"
            . " $proxy proxy_pass http://tools; }"
            . "location /stream { proxy_request_buffering off;"
            . " $proxy proxy_pass http://tools; }"
            . 'location = /here { return 200 "$mcp_session $mcp_method\n"; }'
            . "location /caught_errors { proxy_intercept_errors on;"
            . " error_page 500 502 = \@other; $proxy"
            . ' proxy_pass http://tools; }'
            . 'location @other { return 200 "other"; }');

subtest legacy => \&legacy;
subtest digest => \&digest;
subtest modern => \&modern;
subtest bodies => \&bodies;
subtest verdicts => \&verdicts;
subtest failures => \&failures;
subtest revived => \&revived;
subtest redirected => \&redirected;
subtest limit => \&limit;
subtest unused => \&unused;

finish();


sub caller_of { return client($nginx, headers => [$mark], @_) }


# Makes a request and returns its line by name; "-" is empty.

sub logged {
    my ($code) = @_;

    my $n = ++$mark->[1];
    my $x = $code->();
    my ($line, %value);

    wait_for(sub {
        ($line) = grep { /^$n\|/ } $nginx->access_lines;
        return $line;
    }, 5);

    @value{@names} = map { $_ eq '-' ? '' : $_ } split /\|/, $line // '', -1;
    return (\%value, $x);
}


sub is_logged {
    my ($code, $want, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($got, $x) = logged($code);

    is_deeply({ map { $_ => $got->{$_} } keys %$want }, $want, $name);
    return $x;
}


sub legacy {
    my $c = caller_of();

    my ($line, $x) = logged(sub { $c->initialize });
    my $session = $x->header('X-Session');

    like($session, qr/^[0-9a-f]{12}$/, 'an issued session, in a header');
    is_deeply($line,
        { mark => $mark->[1], session => $session, method => 'initialize',
          name => '', version => '', peer => $fake->addr, state => 'connecting',
          verdict => 'ok' }, 'and in the log');
    is($x->header('X-Peer'), $fake->addr . '-connecting', 'peer and state');

    is_logged(sub { $c->initialized },
        { session => $session, version => '2025-06-18', name => '',
          method => 'notifications/initialized', verdict => 'ok' },
        'a notification');

    $x = is_logged(sub { $c->call('echo') },
        { session => $session, version => '2025-06-18', name => 'echo',
          method => 'tools/call', peer => $fake->addr, state => 'connected',
          verdict => 'ok' }, 'a call');
    is($x->header('X-Peer'), $fake->addr . '-connected', 'in a header');

    is_logged(sub { $c->list }, { method => 'tools/list', name => '' },
              'a list');
    is_logged(sub { $c->rpc('prompts/get', { name => 'greet' }) },
              { method => 'prompts/get', name => 'greet' }, 'a prompt');
    is_logged(sub { $c->rpc('resources/read', { uri => 'file:///a' }) },
              { method => 'resources/read', name => 'file:///a' },
              'a resource');

    my $get = $c->get;

    $get->{fh} = undef;
    $get->{failed} = 'left';
    is_logged(sub { $c->delete_session },
              { session => $session, method => '', name => '',
                verdict => 'ok' }, 'DELETE');
    return;
}


# Stable, keyed, and not the id's own hash.

sub digest {
    my @c = map { caller_of() } 1 .. 3;

    $_->open_session(1) for @c;

    my %seen = map { $_->call->header('X-Session') => 1 } @c, @c, @c;

    is(keys %seen, 3, 'one digest a session');

    my $before = $c[0]->call->header('X-Session');

    $nginx->reload(gone => 1);
    is($c[0]->call->header('X-Session'), $before, 'kept over a reload');

    my ($line) = logged(sub {
        return caller_of(uri => '/two', session => $c[0]->session)
               ->call;
    });

    is($line->{session}, $before, 'one key for all upstreams');

    ($line) = logged(sub {
        return $c[0]->request('POST', '{}', ['Mcp-Session-Id', 'a'],
                              ['Mcp-Session-Id', 'b']);
    });
    is($line->{session}, '', 'two ids are none');

    ($line) = logged(sub {
        return $c[0]->request('POST', '{}', ['Mcp-Session-Id', "a b"]);
    });
    is($line->{session}, '', 'nor is one that is not valid');
    return;
}


# 2026-07-28: from the headers, whatever the body says.

sub modern {
    my $c = caller_of();
    my $body = '{"jsonrpc":"2.0","id":1,"method":"body","params":{}}';
    my @modern = (['MCP-Protocol-Version', '2026-07-28']);

    my $sent = sub {
        my @headers = @_;

        return sub { $c->request('POST', $body, @modern, @headers) };
    };
    my $coded = sub { '=?base64?' . encode_base64($_[0], '') . '?=' };

    is_logged($sent->(['Mcp-Method', 'tools/call'], ['Mcp-Name', 'echo']),
              { method => 'tools/call', name => 'echo',
                version => '2026-07-28' }, 'headers');
    is_logged($sent->(['mcp-method', 'x']), { method => 'x', name => '' },
              'no name');
    is_logged($sent->(), { method => '', name => '' },
              'the body does not count');
    is_logged($sent->(['Mcp-Method', 'a'], ['Mcp-Method', 'b']),
              { method => '' }, 'two methods are none');
    is_logged($sent->(['Mcp-Name', $coded->('echo')]), { name => 'echo' },
              'base64');
    is_logged($sent->(['Mcp-Name', $coded->("two words")]), { name => '' },
              'base64 of other bytes');
    is_logged($sent->(['Mcp-Name', $coded->('x' x 129)]), { name => '' },
              'base64 of a long one');
    is_logged($sent->(['Mcp-Name', $coded->('x' x 5000)]), { name => '' },
              'base64 of a very long one');
    is_logged($sent->(['Mcp-Name', '=?base64?***?=']), { name => '' },
              'no base64');
    is_logged($sent->(['Mcp-Name', '=?base64??=']), { name => '' },
              'nothing in it');
    is_logged($sent->(['Mcp-Name', '=?base64?=']),
              { name => '=?base64?=' }, 'no end of its own');
    is_logged($sent->(['Mcp-Name', 'x' x 128]), { name => 'x' x 128 },
              '128 bytes');
    is_logged($sent->(['Mcp-Name', 'x' x 129]), { name => '' },
              '129 bytes');
    is_logged($sent->(['Mcp-Name', "a b"]), { name => '' }, 'a blank');
    is_logged($sent->(['Mcp-Name', "\xc3\xa9"]), { name => '' },
              'not ASCII');

    @modern = (['MCP-Protocol-Version', '2025-11-25']);
    is_logged($sent->(['Mcp-Method', 'x']), { method => 'body' },
              'an older version: the body');
    @modern = ();
    is_logged($sent->(['Mcp-Method', 'x']), { method => 'body' },
              'no version: the body');
    @modern = (['MCP-Protocol-Version', "x y"]);
    is_logged($sent->(), { version => '' }, 'a version that is none');
    return;
}


sub bodies {
    my $c = caller_of();
    my $json = sub { return $c->request('POST', $_[0], @_[1 .. $#_]) };
    my $call = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
             . '{"name":"echo","arguments":{"a":"%s"}}}';
    my $long = sprintf $call, 'x' x 100_000;

    is_logged(sub { $json->($long) },
              { method => 'tools/call', name => 'echo' }, '100 kB');
    is_logged(sub { $json->('{"params":{"arguments":{"a":"' . 'x' x 70_000
                            . '"}},"jsonrpc":"2.0","method":"late"}') },
              { method => '', name => '' }, 'after the first 64k');
    is_logged(sub { $json->("[$long]") }, { method => '', name => '' },
              'an array');
    is_logged(sub { $json->('method=tools/call') },
              { method => '', name => '' }, 'no JSON');
    is_logged(sub { $json->('') }, { method => '', name => '' }, 'empty');
    is_logged(sub { $json->('{"jsonrpc":"2.0","method":"a\nb"}') },
              { method => '' }, 'a control character');

    $c->{uri} = '/file';
    is_logged(sub { $json->($long) }, { method => '', name => '' },
              'not in memory');

    $c->{uri} = '/stream';

    my ($line) = logged(sub { $json->($long) });

    like($line->{method}, qr{^(?:tools/call)?$}, 'a body passed on as it comes');
    $c->{uri} = '/mcp';

    is_logged(sub { $c->request('PUT', sprintf $call, '') },
              { method => '' }, 'no POST');
    return;
}


sub verdicts {
    my $c = caller_of();

    $c->open_session(1);

    my %error = map { $_ => { status => 200, error =>
                      { code => $_, message => 'so' } } } -32603, -32601;
    my @cases = (
        ['ok', 'an error', $error{-32603}],
        ['unsupported', 'no such method', $error{-32601}],
        ['auth', 'HTTP 401', { status => 401, body => '' }],
        ['limited', 'HTTP 429', { status => 429, body => '' }],
        ['misroute', 'HTTP 415', { status => 415, body => '' }],
        ['peer_down', 'HTTP 502', { status => 502, body => '' }],
        ['timeout', 'no answer', { hang => 1 }],
        ['peer_down', 'reset', { reset => 'before' }],
        ['ok', 'an event stream', { mode => 'sse' }],
        ['ok', 'a long answer', { body_bytes => 200_000 }],
        ['broken_reply', '200 without a body', { body => '', type => '' }],
        ['session_lost', 'HTTP 404',
         { status => 404, error => { code => -32001,
                                     message => 'Session not found' } }],
    );

    for my $case (@cases) {
        my ($verdict, $name, $do) = @$case;

        $fake->rule(do => $do, times => 1);
        is_logged(sub { $c->call }, { verdict => $verdict }, $name);
        $fake->clear;
    }

    is_logged(sub { $c->call },
              { verdict => 'session_lost', peer => $fake->addr },
              'our own 404, with the peer that lost it');

    $c = caller_of();
    $c->open_session(1);

    $fake->rule(do => { status => 405, body => '' }, times => 1);
    is_logged(sub { $c->wait($c->start_get) },
              { verdict => 'unsupported' }, 'GET answered 405');

    is_logged(sub { $c->request('GET') }, { verdict => '', method => '' },
              'not MCP');

    # a client that leaves says nothing of the server

    $fake->rule(do => { hang => 1 }, times => 1);

    is_logged(sub {
        my $x = $c->start_call;

        MCP::Exchange::drive([$x], timeout => 0.15);
        close $x->{fh};
        return $x;
    }, { verdict => '', method => 'tools/call' }, 'a client that left');
    return;
}


sub failures {
    my $c = caller_of(uri => '/gone');

    is_logged(sub { $c->initialize },
              { verdict => 'peer_down', peer => $dead->addr,
                state => 'degraded', method => 'initialize' },
              'refused');
    return;
}


# The server knows the session by another id now; it is still the same.

sub revived {
    my $c = caller_of(uri => '/revived');

    $c->open_session(1);

    my ($before) = logged(sub { $c->call });

    $moody->forget;

    my ($after, $x) = logged(sub { $c->call });

    is($x->status, 200, 'revived');
    is($after->{session}, $before->{session}, 'the same session in the log');
    is($after->{verdict}, 'ok', 'the verdict is that of the answer');

    my ($sent) = reverse grep { $_->{rpc} eq 'tools/call' } $moody->requests;

    is(join(' ', MCP::Fake::values_of($sent, 'X-Digest')),
       $before->{session}, 'and towards the server');
    isnt($sent->{session}, $c->session, 'which calls it otherwise');
    return;
}


# What an internal redirect takes from the request is still told.

sub redirected {
    my $c = caller_of(uri => '/caught_errors');

    $fake->rule(do => { status => 500, type => 'text/html',
                        body => '<p>' }, times => 1);

    my $x = is_logged(sub { $c->initialize },
                      { peer => $fake->addr, state => 'connected',
                        method => 'initialize' }, 'error_page');
    is($x->body, 'other', 'by another location');
    $fake->clear;
    return;
}


# One client too fast does not stop another.

sub limit {
    my @c = map { caller_of() } 1 .. 2;

    $_->open_session for @c;
    $_->{uri} = '/limited' for @c;

    is(join(' ', map { $c[0]->call->status } 1 .. 3), '200 200 503',
       'the third call of a session is one too many');
    is($c[1]->call->status, 200, 'another session is not limited by it');
    return;
}


sub unused {
    my $c = caller_of(uri => '/plain', session => 'x');

    is_logged(sub { $c->call },
              { peer => '', state => '', verdict => '', method => 'tools/call',
                name => 'echo' }, 'another upstream');
    like($c->wait(caller_of(uri => '/here', session => 'x')->start_call)
         ->body, qr/^[0-9a-f]{12} /, 'a location without an upstream');

    my $plain = nginx(fakes => [$fake], http => "log_format mcp '$format';",
                      location => 'access_log %%dir%%/access.log mcp;'
                                . 'add_header X-Session $mcp_session;');

    client($plain, session => 'x')->call;
    eventually(sub { $plain->access_lines }, 'a line');
    is(($plain->access_lines)[-1], '-|-|-|-|-|-|-|-',
       'without mcp_keepalive all are empty');

    $plain->stop;
    return;
}
