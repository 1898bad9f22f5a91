#!/usr/bin/perl

# Protocol 2026-07-28: no sessions.  A peer that has answered such a client is
# asked once in an interval, the way that client asked.

use lib 't/lib';
use MCP::Test;
use MCP::Fake ();
use MCP::Memory qw(zone_holds);

my $v = '2026-07-28';

bytes();
one_asks();
beside_sessions();
stale_ids();
silent_clients();
versions();
mismatch();
no_such_method();
credentials();
wiped();
attempts();
prompt_requests();
streams();
finish();


sub modern_fake {
    my $fake = fake(@_);

    $fake->sessions(modern => [$v]);
    return $fake;
}


# interval and all else of mcp_keepalive, further directives

sub front {
    my ($fakes, $keepalive, %arg) = @_;

    my $more = delete $arg{upstream} // '';

    return nginx(fakes => $fakes, %arg,
                 upstream => "mcp_keepalive zone=mcp:1m jitter=0% $keepalive;"
                           . "$more keepalive 8;");
}


# A header of a request, or of the last keepalive a fake server saw.

sub value_of { return (MCP::Fake::values_of(@_))[0] }


sub last_value {
    my ($fake, $name) = @_;

    my ($last) = reverse $fake->keepalives;

    return $last ? value_of($last, $name) // '' : '';
}


# ---- what is sent ----

sub bytes {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=300ms');
    my $c = client($nginx, uri => '/mcp?a=1&b=%2f', host => 'tools.example:8');

    is($c->modern('tools/call', name => 'echo')->status, 200, 'a client');
    is($nginx->peer($fake)->{state}, 'connected', 'it is proof');
    eventually(sub { $fake->keepalives >= 2 }, 'keepalives come');

    my ($k) = $fake->keepalives;
    my %want = ('MCP-Protocol-Version' => $v, 'Mcp-Method' => 'tools/list',
                'Content-Type' => 'application/json',
                'Accept' => 'application/json, text/event-stream',
                'Accept-Encoding' => 'identity', 'Host' => 'tools.example:8',
                'Content-Length' => length $k->{body});

    for my $name (sort keys %want) {
        is_deeply([MCP::Fake::values_of($k, $name)], [$want{$name}], $name);
    }

    is(value_of($k, $_), undef, "no $_")
        for qw(Mcp-Session-Id Mcp-Name Origin Cookie Transfer-Encoding);
    is("$k->{method} $k->{uri}", 'POST /mcp?a=1&b=%2f', 'where it went');
    like($k->{body}, qr/^\{"jsonrpc":"2\.0","id":"mcpka-[0-9a-f]{24}",
        "method":"tools\/list","params":\{"_meta":\{
        "io\.modelcontextprotocol\/protocolVersion":"\Q$v\E",
        "io\.modelcontextprotocol\/clientInfo":
        \{"name":"ngx_mcp_keepalive_module","version":"[\d.]+"\},
        "io\.modelcontextprotocol\/clientCapabilities":\{\}\}\}\}$/x,
        'the body');

    eventually(sub { $nginx->keepalives('ok') >= 2 }, 'they are ok');
    is($nginx->keepalives('ok'), $nginx->keepalives('sent'), 'all of them');

    my $sessions = $nginx->upstream->{sessions};

    is_deeply([grep { $sessions->{$_} } sort keys %$sessions], [],
              'no session is made up');
    is(scalar($nginx->log_lines(qr/\[(?:warn|error|crit)\]/)), 0,
       'nothing to complain of');
    return;
}


# ---- how often ----

sub one_asks {
    my @fakes = map { modern_fake() } 1 .. 3;
    my $nginx = front(\@fakes, 'interval=400ms', workers => 4);

    $_->modern('tools/list') for clients($nginx, 12);

    my %asked = map { $_->{name} => scalar $_->requests } @fakes;

    is(scalar(grep { $_ } values %asked), 3, 'all three have clients');
    wait_for(sub { (grep { $_->keepalives >= 5 } @fakes) == 3 }, 5);
    $nginx->reload;
    wait_for(sub { (grep { $_->keepalives >= 8 } @fakes) == 3 }, 5);

    for my $fake (@fakes) {
        my @t = map { $_->{t} } $fake->keepalives;
        my @gap = sort { $a <=> $b } map { $t[$_] - $t[$_ - 1] } 1 .. $#t;

        cmp_ok($gap[0], '>=', 400 - 25, 'one in an interval, of all workers');
        cmp_ok($gap[$#gap / 2], '<=', 700, 'and not much later');
    }

    # a client's success takes its place; where the machine stood still for so
    # long, there was none

    my $from = now_ms();
    my $end = $from + 1000;

    while (now_ms() < $end) {
        $_->modern('tools/call') for clients($nginx, 12);
        pause_ms(50);
    }

    for my $fake (@fakes) {
        my @all = grep { $_->{t} > $from } $fake->requests;
        my @early = grep { $all[$_]{keepalive}
                           && $all[$_]{t} - $all[$_ - 1]{t} < 400 - 25 }
                    1 .. $#all;

        is(scalar @early, 0, 'a client\'s success postpones it');
    }

    my $before;
    my $off = front([$fakes[0]], 'interval=off');

    $before = $fakes[0]->keepalives;
    $nginx->stop;
    client($off)->modern('tools/list');
    never(sub { $off->keepalives('sent') }, 'interval=off', 600);
    return;
}


# ---- both eras ----

sub beside_sessions {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=300ms');
    my $old = client($nginx);
    my $new = client($nginx);

    $new->modern('tools/list');
    $old->open_session(1);

    my $up = $nginx->upstream->{sessions};

    is("$up->{learned} $up->{ready}", '1 1', 'one session');

    # proof of the one postpones the other

    my $end = now_ms() + 1000;

    while (now_ms() < $end) {
        $old->call;
        pause_ms(40);
    }

    is(scalar $fake->keepalives, 0, 'a busy session speaks for both');

    # quiet, the session is asked in its own name whatever comes in between

    eventually(sub {
        return (grep { defined $_->{session} } $fake->keepalives) >= 3;
    }, 'the session is asked');

    # 405: nothing to hold on to

    for my $method (qw(GET DELETE)) {
        my $x = $new->request($method, undef, ['MCP-Protocol-Version', $v],
                              ['Mcp-Session-Id', $old->session]);

        is($x->status, 405, "$method of the new era goes through");
    }

    is($old->call->status, 200, 'and does nothing to a session');
    is($nginx->upstream->{sessions}{active}, 1, 'which is still there');
    $old->delete_session;

    my $before = grep { !defined $_->{session} } $fake->keepalives;

    eventually(sub {
        return grep({ !defined $_->{session} } $fake->keepalives)
               >= $before + 2;
    }, 'without it the peer is asked');
    is($nginx->keepalives('ok'), $nginx->keepalives('sent'), 'all are ok');
    return;
}


# A session id beside the new version means nothing.

sub stale_ids {
    my @fakes = map { modern_fake() } 1 .. 2;
    my $nginx = front(\@fakes, 'interval=60s');
    my $old = client($nginx);

    $old->open_session(1);

    my $sessions = $nginx->upstream->{sessions};
    my %seen;

    for my $id (('of-other-times') x 4, ($old->session) x 4) {
        my $x = client($nginx)->modern('tools/call', headers => [
            ['Mcp-Session-Id', $id]]);

        is($x->status, 200, 'served with a session id');
        $seen{$x->server}++;
    }

    is(scalar keys %seen, 2, 'by any peer');
    is_deeply($nginx->upstream->{sessions}, $sessions, 'nothing is tracked');

    # lost

    $_->forget for @fakes;
    $old->call;
    is($old->call->status, 404, 'the session is lost');
    is(client($nginx)->modern('tools/call', headers => [
           ['Mcp-Session-Id', $old->session]])->status, 200,
       'its id does not matter');

    # a server that issues ids all the same

    $_->rule(do => { headers => [['Mcp-Session-Id', 'odd-one']] })
        for @fakes;
    client($nginx)->modern('tools/list');
    is($nginx->upstream->{sessions}{learned}, 1, 'none is learned');

    # what looks new, and is not

    my $n = $nginx->upstream->{sessions}{adopted};

    for my $headers ([['MCP-Protocol-Version', $v]],
                     [['MCP-Protocol-Version', $v],
                      ['MCP-Protocol-Version', '2025-06-18']],
                     [['MCP-Protocol-Version', 'new']]) {
        $_->clear for @fakes;
        client($nginx)->initialize(@$headers);
    }

    cmp_ok($nginx->upstream->{sessions}{learned}, '==', 4,
           'initialize starts a session whatever its header says');
    is($nginx->upstream->{sessions}{adopted}, $n, 'none is adopted');

    # not read before the server has it

    my $whole = front(\@fakes, 'interval=60s',
                      location => 'proxy_request_buffering off;');

    client($whole)->initialize(['MCP-Protocol-Version', $v],
                               ['Mcp-Method', 'initialize']);
    is($whole->upstream->{sessions}{learned}, 1, 'nor where it is not read');
    return;
}


# ---- for how long ----

sub silent_clients {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=200ms max_idle=1600ms');
    my $c = client($nginx);

    $c->modern('tools/list');
    eventually(sub { $fake->keepalives >= 3 }, 'keepalives come');
    pause_ms(1600);

    my $count = $fake->keepalives;

    never(sub { $fake->keepalives > $count }, 'until max_idle is over', 500);
    cmp_ok($count, '<=', 8, 'not one too many');
    $c->modern('tools/list');
    eventually(sub { $fake->keepalives > $count }, 'and again');
    return;
}


# ---- -32022 ----

sub versions {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=250ms');
    my $c = client($nginx);
    my $later = '2099-01-01';
    my $last = sub { last_value($fake, 'MCP-Protocol-Version') };

    $fake->sessions(modern => [$later, $v]);
    $c->modern('tools/list', version => $later);
    eventually(sub { $fake->keepalives }, 'a keepalive');
    is($last->(), $later, 'in the version of the client');

    $fake->sessions(modern => ['2026-01-01', $v]);

    my $sent = $nginx->keepalives('sent');
    my $ok = $nginx->keepalives('ok');

    eventually(sub { $nginx->keepalives('ok') >= $ok + 3 }, 'it goes on');
    is($last->(), $v, 'in another that the server names');

    my @asked = map { value_of($_, 'MCP-Protocol-Version') }
                $fake->keepalives;

    is(scalar(grep { $_ eq $later } @asked[$sent .. $#asked]), 1,
       'asked once in the old one');
    is($nginx->keepalives('misroute'), 0, 'which is no verdict');
    like(($fake->keepalives)[-1]{body}, qr/protocolVersion":"\Q$v\E"/, 'the body says so, too');

    # none that we speak

    $fake->sessions(modern => ['2030-01-01']);
    eventually(sub { $nginx->keepalives('misroute') }, 'misroute');
    $sent = $nginx->keepalives('sent');
    never(sub { $nginx->keepalives('sent') > $sent }, 'and no more', 600);
    is($nginx->peer($fake)->{state}, 'connected', 'that is no failure');
    is(scalar($nginx->log_lines(qr/where its clients succeed:.*-32022/)), 1,
       'told once');
    $c->modern('tools/list', version => '2030-01-01');
    eventually(sub { $nginx->keepalives('sent') > $sent },
               'a client shows the way');
    return;
}


# ---- -32020 and others that say that our request is wrong ----

sub mismatch {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=200ms',
                      location => 'proxy_set_header Mcp-Method $method;',
                      http => 'map $request_id $method { default $m; }'
                            . 'map $http_x_a $m { "" wrong; default $http_x_a'
                            . '; }');
    my $c = client($nginx);

    is($c->modern('tools/list', headers => [['X-A', 'tools/list']])->status,
       200, 'a client is served');
    eventually(sub { $nginx->keepalives('misroute') }, '-32020: misroute');

    my $sent = $nginx->keepalives('sent');

    never(sub { $nginx->keepalives('sent') > $sent }, 'and no more', 500);
    is(scalar($nginx->log_lines(qr/\[warn\].*-32020/)), 1, 'told once');
    is($nginx->peer($fake)->{state}, 'connected', 'that is no failure');
    return;
}


sub no_such_method {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=200ms method=auto');
    my $c = client($nginx);

    $fake->rule(when => { keepalive => 1 }, do => {
        status => 404, error => { code => -32601,
                                  message => 'Method not found' } });
    $c->modern('tools/call');
    eventually(sub { $nginx->keepalives('unsupported') >= 3 },
               '404 with -32601: unsupported, and it goes on');
    is($nginx->keepalives('unsupported'), $nginx->keepalives('sent'),
       'nothing else');
    is(scalar(grep { $_->{rpc} ne 'tools/list' } $fake->keepalives), 0,
       'always tools/list');
    is($nginx->peer($fake)->{state}, 'connected', 'it is proof');
    return;
}


# ---- credentials ----

sub credentials {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=200ms', upstream =>
                      'mcp_keepalive_pass_header Authorization X-Key;');
    my $as = sub { client($nginx, headers => [['Authorization',
                                               "Bearer $_[0]"]]) };
    my $last = sub { last_value($fake, 'Authorization') };

    $as->('first')->modern('tools/list');
    eventually(sub { $last->() eq 'Bearer first' }, 'the client\'s token');

    # an answer that is late has a token that may be, too

    $fake->rule(when => { rpc => 'tools/call' }, do => { delay => 300 });

    my $slow = $as->('first')->start_modern('tools/call');

    MCP::Exchange::drive([$slow], timeout => 0.05);
    $as->('second')->modern('tools/list');

    my $n = $fake->keepalives;

    MCP::Exchange::drive([$slow]);
    is($slow->status, 200, 'a late answer to an older request');
    eventually(sub { $fake->keepalives >= $n + 2 }, 'keepalives');
    is(scalar(grep { (value_of($_, 'Authorization') // '') ne 'Bearer second' }
              ($fake->keepalives)[$n .. $fake->keepalives - 1]), 0,
       'with the newest token');

    # it expires

    $fake->rule(when => { keepalive => 1 }, do => { status => 401,
                                                    body => '' });
    eventually(sub { $nginx->keepalives('auth') }, '401: auth');
    $n = $nginx->keepalives('sent');
    never(sub { $nginx->keepalives('sent') > $n }, 'one, and no more', 500);
    is($nginx->peer($fake)->{state}, 'connected', '401 is no failure');
    $as->('second')->modern('tools/list');
    never(sub { $nginx->keepalives('sent') > $n }, 'nor with the same', 400);
    $fake->clear;
    $as->('third')->modern('tools/list');
    eventually(sub { $last->() eq 'Bearer third' }, 'another token');

    # not remembered: asked without

    my $bare = front([$fake], 'interval=200ms');

    $nginx->stop;
    $n = $fake->keepalives;
    client($bare, headers => [['Authorization', 'Bearer x']])
        ->modern('tools/list');
    eventually(sub { $bare->keepalives('ok') >= 2 }, 'without pass_header');
    is(scalar(grep { defined value_of($_, 'Authorization') }
              ($fake->keepalives)[$n .. $fake->keepalives - 1]), 0,
       'without the header');
    return;
}


sub wiped {
    my $fake = modern_fake();
    my ($first, $second) = map { "Bearer wipe-$_-" . 'x9' x 60 } qw(a b);
    my $nginx = front([$fake], 'interval=200ms max_idle=600ms', upstream =>
                      'mcp_keepalive_pass_header Authorization;');
    my $c = client($nginx, headers => [['Authorization', $first]]);
    my $worker = ($nginx->workers)[0];

    $c->modern('tools/list');

    SKIP: {
        skip 'cannot look into the zone', 4
            unless defined zone_holds($worker, $first);

        ok(zone_holds($worker, $first), 'the token is in the zone');
        $c->{headers} = [['Authorization', $second]];
        $c->modern('tools/list');
        ok(!zone_holds($worker, $first), 'wiped when there is another');
        ok(zone_holds($worker, $second), 'which is there');
        eventually(sub { !zone_holds($worker, $second) },
                   'wiped when no client comes any more');
        is($nginx->status->{zones}{mcp}{sessions}, 0, 'no sessions at all');
    }

    is(scalar($nginx->log_lines(qr/wipe-/)), 0, 'not in the log');
    return;
}


# ---- a peer that is marked ----

sub attempts {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=200ms timeout=300ms',
                      upstream => 'mcp_reconnect backoff=200ms'
                                . ' backoff_max=200ms initial=50 budget=50;');
    my $c = client($nginx);
    my $state = sub { $nginx->peer($fake)->{state} };

    $c->modern('tools/list');
    eventually(sub { $fake->keepalives }, 'keepalives come');
    $fake->kill;
    eventually(sub { $state->() eq 'degraded' }, 'gone: degraded');
    eventually(sub { $nginx->peer($fake)->{charges} >= 1 }, 'charged');
    $fake->start;
    $fake->sessions(modern => [$v]);
    eventually(sub { $state->() eq 'connected' },
               'back: connected, without a client');
    is(scalar(grep { $_->{gen} == 2 && !$_->{keepalive} } $fake->requests), 0,
       'it was ours');
    cmp_ok(scalar($nginx->log_lines(qr/attempt: ok: HTTP 200, JSON-RPC/)),
           '>=', 1, 'the attempt was a keepalive');

    # reached, but no proof: 401

    $fake->kill;
    eventually(sub { $state->() eq 'degraded' }, 'gone again');
    $fake->start;
    $fake->rule(when => { keepalive => 1 }, do => { status => 401,
                                                    body => '' });
    eventually(sub { $state->() eq 'connecting' }, '401 is reach');
    $fake->clear;
    $fake->sessions(modern => [$v]);
    is($c->modern('tools/list')->status, 200, 'a client comes');
    is($state->(), 'connected', 'and is proof');
    return;
}


# ---- clients that are not answered ----

sub prompt_requests {
    for my $case (['tools/list', 1], ['server/discover', 1],
                  ['tools/call', 0], ['subscriptions/listen', 0]) {
        my ($method, $counts) = @$case;
        my $fake = modern_fake();
        my $nginx = front([$fake], 'interval=60s timeout=250ms');
        my $c = client($nginx);

        $c->modern('tools/list');
        $fake->rule(when => { rpc => $method }, do => { hang => 1 });
        pause_ms(5);

        my $x = $c->start_modern($method);

        MCP::Exchange::drive([$x], timeout => 0.6);
        is(scalar($nginx->log_lines(qr/-> degraded: .*not answered in time/)),
           $counts, "$method unanswered for timeout");
        $x->abort;
        $nginx->stop;
        $fake->kill;
    }

    # in the old era the header means nothing

    my $fake = fake();
    my $nginx = front([$fake], 'interval=60s timeout=250ms');
    my $c = client($nginx);

    $c->open_session(1);
    $fake->rule(when => { rpc => 'tools/list' }, do => { hang => 1 });

    my $x = $c->start_list(['Mcp-Method', 'tools/list']);

    MCP::Exchange::drive([$x], timeout => 0.6);
    is($nginx->peer($fake)->{state}, 'connected', 'Mcp-Method alone');
    $x->abort;
    return;
}


# A subscription is answered by a stream, which is proof.

sub streams {
    my $fake = modern_fake();
    my $nginx = front([$fake], 'interval=250ms');
    my $c = client($nginx);

    $fake->rule(when => { rpc => 'subscriptions/listen' }, do => {
        status => 200, type => 'text/event-stream', stay_open => 1,
        body => "data: {\"jsonrpc\":\"2.0\",\"method\":"
              . "\"notifications/subscriptions/acknowledged\"}\n\n" });

    my $x = $c->start_modern('subscriptions/listen');

    MCP::Exchange::drive([$x], until => sub { length $x->body });
    is($x->status, 200, 'a subscription');
    is($nginx->peer($fake)->{state}, 'connected', 'its answer is proof');
    eventually(sub { $nginx->keepalives('ok') >= 3 }, 'keepalives beside it');
    ok(!$x->over, 'it stays open');
    unlike($x->body, qr/mcpka-/, 'and nothing of ours is on it');
    $x->abort;
    return;
}
