#!/usr/bin/perl

# How servers say that they do not know a session: what a keepalive makes of
# it, what the client is told, and who answers from then on.  Named by the
# cases of the field collection.

use lib 't/lib';
use MCP::Lost;
use MCP::Test;

my $fake = fake();
my ($old, $new) = fakes(2);

my $no_session = 'Bad Request: No valid session ID provided';
my $html = '<!doctype html><html><body>HTTP Status 404</body></html>';
my $intercept = 'proxy_intercept_errors on; error_page 404 500 503 = /page;';


# ---- the table ----

# name, answer, verdicts of a keepalive that gets it, then of the client:
#   ours    the 404 of the module      then refused: by the module
#   own     the server's, unchanged    then refused, or asked: the server is
# Further: upstream and location directives; headers that ours has to keep.

my @cases = (
    [B01 => rpc_error(404, -32001, 'Session not found'),
     'session_lost', own => 'refused'],

    [B02 => rpc_error(400, -32000, $no_session),
     'session_lost', ours => 'refused'],

    [B04 => { status => 401, body => '', headers => [
        ['WWW-Authenticate', 'Bearer error="invalid_token"']] },
     'auth', own => 'asked'],

    [B06 => rpc_error(503, -32001, 'session is unknown on this instance'),
     'session_lost', ours => 'refused'],
    [B06_retry_and_text => { %{ rpc_error(503, -32001, 'Unknown session') },
                             headers => [['Retry-After', '1']] },
     'session_lost', ours => 'refused'],
    [B06_html => { status => 503, type => 'text/html', body => $html },
     'peer_down', own => 'asked'],
    [B06_empty => { status => 503, body => '' },
     'peer_down', own => 'asked'],
    [B06_retry => { status => 503, body => '',
                    headers => [['Retry-After', '1']] },
     'limited', own => 'asked'],

    [B07 => { status => 500, type => 'application/json', body =>
              '{"error":"Error POSTing to endpoint (HTTP 400): {\"error\":'
              . '{\"code\":-32000,\"message\":\"' . $no_session . '\"}}"}' },
     'session_lost', ours => 'refused'],
    [B07_internal => rpc_error(500, -32000, 'Internal error', '1'),
     'session_suspect', own => 'asked'],

    [B09 => rpc_error(200, -32600, 'missing or invalid Mcp-Session-Id'),
     'session_lost', ours => 'refused'],
    [B09_bare => rpc_error(200, -32600, 'Invalid Request'),
     'session_suspect', own => 'asked'],

    [B10 => rpc_error(404, -32600, 'Session not found', 'server-error'),
     'session_lost', own => 'refused'],

    [B11 => { status => 404, type => 'application/json',
              body => '{"jsonrpc":"2.0","id":1}' },
     'session_lost', ours => 'refused'],

    [B12_text => { status => 404, type => 'text/plain',
                   body => "session not found\n" },
     'session_lost', ours => 'refused'],
    [B12_html => { status => 404, type => 'text/html', body => $html },
     'session_suspect', ours => 'refused'],
    [B12_empty => { status => 404, body => '' },
     'session_suspect', ours => 'refused'],
    [B12_intercept => { status => 404, type => 'text/html', body => $html },
     'session_suspect', ours => 'refused', location => $intercept],
    [B12_intercept_text => { status => 404, type => 'text/plain',
                             body => 'session not found' },
     'session_lost', ours => 'refused', location => $intercept],
    [B12_intercept_json => rpc_error(404, -32001, 'Session not found'),
     'session_lost', own => 'refused', location => $intercept],

    [B13_code => rpc_error(404, -32005, 'Session expired', 3),
     'session_lost', own => 'refused'],
    [B13_unknown => { error => { code => -32000, message =>
                                 'demo session s-1 is no longer live' } },
     'session_suspect', own => 'asked'],
    [B13_phrase => { error => { code => -32000, message =>
                                'demo Session s-1 is NO longer live' } },
     'session_lost', ours => 'refused',
     upstream => 'mcp_session_lost_text "gone fishing" "no longer live";'],
    [B13_result => { type => 'application/json', body =>
                     '{"jsonrpc":"2.0","id":0,"result":{"isError":true,'
                     . '"content":[{"type":"text","text":"Session not found,'
                     . ' no longer live"}]}}' },
     'ok', own => 'asked',
     upstream => 'mcp_session_lost_text "no longer live";'],
);

my $options = 'mcp_keepalive zone=mcp interval=200ms timeout=500ms;'
            . ' mcp_reconnect backoff=200ms drain=off;';
my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";';


# ---- one nginx with all of them ----

my $nginx = nginx(
    fakes => [$fake, $old, $new], workers => 2, servers => [$fake->addr],
    upstream => 'mcp_keepalive zone=mcp:2m interval=200ms;',
    http => 'upstream stock { server %%fake1%%; }'
          . "upstream pair { server %%fake2%% max_fails=0;"
          . " server %%fake3%% max_fails=0; $options }"
          . join('', map { "upstream up_$_->[0] { server %%fake1%%; $options "
                           . (option($_)->{upstream} // '') . ' keepalive 2; }'
                         } @cases),
    server => 'location = /page { return 200 "page"; }'
            . "location /stock { $proxy proxy_pass http://stock; }"
            . "location /stream { proxy_request_buffering off; $proxy"
            . ' proxy_pass http://tools; }'
            . "location /file { client_body_in_file_only clean; $proxy"
            . ' proxy_pass http://tools; }'
            . "location /small { client_body_buffer_size 1k; $proxy"
            . ' proxy_pass http://tools; }'
            . "location /pair { $proxy proxy_pass http://pair; }"
            . join('', map { "location /$_->[0] { $proxy "
                             . (option($_)->{location} // '')
                             . " proxy_pass http://up_$_->[0]; }"
                           } @cases));

my %probed = map { $_->[0] => client($nginx, uri => "/$_->[0]") } @cases;
my %refused;
my %client = map { $_->[0] => client($nginx, uri => "/$_->[0]") } @cases;
my $later = client($nginx);

each_client([values %probed, values %client, $later],
            [qw(initialize initialized call)]);

for my $case (@cases) {
    my ($name, $do) = @$case;

    $fake->rule(do => $do,
                when => { keepalive => 1, session => session($probed{$name}) });
}

for my $case (@cases) {
    subtest $case->[0] => sub { run_case($case) };
}

subtest refused => \&stay_refused;
subtest B01 => \&repeated;
subtest B02 => \&without_session;
subtest B07 => \&one_of_two;
subtest B14 => \&both_methods;
subtest B15 => \&stale_initialize;
subtest B15_bodies => \&stale_bodies;
subtest B15_late => \&late_body;
subtest delete => \&delete_unknown;
subtest cancelled => \&cancelled;
subtest keepalive => \&keepalive_tells_nobody;
subtest contradicted => \&contradicted;

is(scalar(grep { !defined $_->{session} && ($_->{rpc} // '') ne 'initialize' }
          $fake->requests), 1, 'the module sent nothing without a session')
    or diag(explain([map { [@$_{qw(uri rpc session)}] }
                     grep { !defined $_->{session} } $fake->requests]));

finish();


sub option { my ($case) = @_; return { @$case[5 .. $#$case] } }


sub session { return $_[0]->session // die "no session\n" }


sub requests_of {
    my ($session) = @_;

    return scalar $fake->requests(session => $session, keepalive => 0);
}


sub run_case {
    my ($case) = @_;

    my ($name, $do, $verdict, $seen, $then) = @$case;
    my $c = $client{$name};
    my $session = session($c);

    my $said = shown($nginx, "up_$name", $name, $verdict);

    # what the module never does on its own

    is(scalar(grep { ($_->{rpc} // '') eq 'initialize' }
              $fake->requests(uri => "/$name")), 2,
       'no initialize but those of the clients');

    my $peer = $said->{peers}[0];

    is("$peer->{state} $peer->{epoch} $peer->{charges}", 'connected 0 0',
       'the peer is as it was') if $verdict ne 'peer_down';

    # the client

    $fake->rule(do => $do, when => { keepalive => 0, session => $session });

    my $stock = client($nginx, uri => '/stock', session => $session,
                       id => $c->{id});
    my ($first, $plain) = ($c->call, $stock->call);

    $seen eq 'ours' ? is_lost($first, 'the client')
                    : is_same($first, $plain, 'the client');

    $said = $nginx->upstream("up_$name");
    is($said->{answers}{translated}, $seen eq 'ours' ? 1 : 0, 'translated');
    is($said->{answers}{session_lost}, 0, 'so far the server has answered');
    is($said->{sessions}{lost}, $then eq 'refused' ? 1 : 0, 'lost');

    then_asked($c, $session) if $then eq 'asked';
    then_refused($name, $c, $session) if $then eq 'refused';
    return;
}


sub then_asked {
    my ($c, $session) = @_;

    my $before = requests_of($session);

    $c->call;
    is(requests_of($session), $before + 1, 'then: the server is asked');
    return;
}


sub then_refused {
    my ($name, $c, $session) = @_;

    my @before = $fake->requests(session => $session);

    is_lost($c->call, 'then: a POST');
    is_lost($c->wait($c->start_get), 'then: a GET');
    is_lost($c->delete_session, 'then: a DELETE');
    is_lost($c->initialized, 'then: a notification');
    is($nginx->upstream("up_$name")->{answers}{session_lost}, 4, 'counted');
    is(scalar $fake->requests(session => $session), scalar @before,
       'the server saw none of it');
    $refused{$session} = @before;
    return;
}


# Two intervals later they had no keepalive either.

sub stay_refused {
    my $end = now_ms() + 400;

    wait_for(sub { now_ms() > $end }, 1);

    my @more = grep { $fake->requests(session => $_) > $refused{$_} }
               keys %refused;

    is(scalar @more, 0, 'no keepalive on a lost session');
    cmp_ok(scalar keys %refused, '>=', 10, 'of many');
    return;
}


# ---- B01: a client that never starts over; others are not its business ----

sub repeated {
    my ($c, $other) = clients($nginx, 2);

    $_->open_session(1) for $c, $other;
    $fake->forget($c->session);

    my $own = $c->call;

    is($own->status, 404, 'the server says so itself');

    my $before = requests_of($c->session);
    my $was = $nginx->upstream->{answers}{session_lost};

    for my $n (1 .. 5) {
        is_lost($c->call, "repeat $n");
        is($nginx->upstream->{answers}{session_lost}, $was + $n, 'counted');
    }

    is(requests_of($c->session), $before, 'without the server');
    is($other->call->status, 200, 'another session is served');

    delete $c->{session};
    is($c->open_session(1)->status, 200, 'and so is a new one');
    return;
}


# ---- B02: the same words without a session ----

sub without_session {
    my $do = rpc_error(400, -32000, $no_session);

    $fake->rule(when => { session => '', rpc => 'tools/list' }, do => $do);

    my $x = client($nginx)->list;

    is($x->status, 400, 'untouched');
    is($x->body, $do->{body}, 'word by word');
    return;
}


# ---- B07: one session fails, the other is fine ----

sub one_of_two {
    my ($bad, $good) = clients($nginx, 2);

    $_->open_session(1) for $bad, $good;
    $fake->rule(when => { keepalive => 1, session => $bad->session },
                do => rpc_error(500, -32000, 'Internal error', '1'));

    eventually(sub { $fake->keepalives(session => $bad->session) >= 2
                     && $fake->keepalives(session => $good->session) >= 4 },
               'both had keepalives');

    # asked, confirmed, once more, confirmed: then it is left alone

    my $count = sub { scalar $fake->keepalives(session => $bad->session) };

    wait_for(sub { $count->() >= 4 }, 2);

    my $after = $count->();

    never(sub { $count->() > $after }, 'suspect twice: no more of them', 600);
    cmp_ok($after, '<=', 4, 'not more than needed');
    is($nginx->peer($fake)->{state}, 'connected', 'the peer is connected');
    is($nginx->peer($fake)->{epoch}, 0, 'and was never marked');
    return;
}


# ---- B14: GET and POST are one session ----

sub both_methods {
    for my $first (qw(GET POST)) {
        my $c = client($nginx);

        $c->open_session(1);
        $fake->forget($c->session);

        my $own = $first eq 'GET' ? $c->wait($c->start_get) : $c->call;

        is($own->status, 404, "$first: the server's 404");

        my $before = requests_of($c->session);

        is_lost($c->call, "after $first: POST");
        is_lost($c->wait($c->start_get), "after $first: GET");
        is(requests_of($c->session), $before, "after $first: by the module");
    }

    return;
}


# ---- B15: initialize with the id of a lost, or a dead, session ----

sub stale_initialize {
    my $c = client($nginx);

    $c->open_session(1);

    my $lost = $c->session;

    $fake->forget($lost);
    $c->call;
    is_lost($c->call, 'lost');
    is($c->initialize->status, 200, 'initialize with the lost id');
    isnt($c->session, $lost, 'another id');
    is($c->initialized->status, 202, 'initialized');
    is($c->call->status, 200, 'and in use');
    eventually(sub { $fake->keepalives(session => $c->session) },
               'it gets keepalives');
    is(client($nginx, session => $lost)->call->header('X-Fake'), $fake->{name},
       'the lost one is dropped: the server is asked');

    # a balancer decides, not the pin

    my $three = client($nginx, uri => '/pair');
    my %seen;

    $three->open_session(1);

    for (1 .. 4) {
        my $again = client($nginx, uri => '/pair', session => $three->session);

        $seen{ $again->initialize->header('X-Fake') } = 1;
    }

    is(scalar keys %seen, 2, 'initialize with an old id is not pinned');

    # not to where the old one lived

    my $two = client($nginx, uri => '/pair');

    $two->open_session(1);

    my ($home, $away) = $two->call->server eq $old->{name} ? ($old, $new)
                                                           : ($new, $old);
    my $before = $nginx->upstream('pair')->{sessions}{active};

    $home->refuse(drop => 1);
    is($two->initialize->status, 200, 'initialize, its server is gone');
    is($two->call->server, $away->{name}, 'the new one lives on the other');
    is($nginx->upstream('pair')->{sessions}{active}, $before,
       'and stands in the place of the old one');
    $home->accept;
    return;
}


# An initialize is one wherever nginx has put its body.

sub stale_bodies {
    for my $uri (qw(/mcp /stream /small /file)) {
        for my $size (100, 5000, 40_000) {
            my $c = client($nginx, uri => $uri);

            $c->open_session(1);
            $fake->forget($c->session);
            $c->call;
            is_lost($c->call, "$uri: lost");

            is($c->rpc('initialize', { pad => 'x' x $size })->status, 200,
               "$uri: initialize, $size bytes");
        }
    }

    return;
}


# The header alone says nothing.

sub late_body {
    my $body = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}';

    for my $uri (qw(/mcp /stream)) {
        my $c = client($nginx, uri => $uri);

        $c->open_session(1);
        $fake->forget($c->session);
        $c->call;

        my $head = "POST $uri HTTP/1.1\r\nHost: tools.example\r\n"
                 . "Connection: close\r\nContent-Length: " . length($body)
                 . join('', map { "\r\n$_->[0]: $_->[1]" } $c->mcp_headers);
        my $x = MCP::Exchange->new(port => $c->{port},
                                   bytes => "$head\r\n\r\n");

        MCP::Exchange::drive([$x], timeout => 0.1);
        $x->{out} = $body;
        MCP::Exchange::drive([$x]);

        is($x->status, 200, "$uri: the body came later");
    }

    return;
}


# ---- a DELETE that meets nothing ----

sub delete_unknown {
    my $c = client($nginx);

    $c->open_session(1);
    $fake->forget($c->session);

    my $was = $nginx->upstream->{sessions}{lost};

    is($c->delete_session->status, 404, 'DELETE: 404');
    is($nginx->upstream->{sessions}{lost}, $was + 1, 'counts as lost');

    my $before = requests_of($c->session);

    is_lost($c->call, 'from then on');
    is(requests_of($c->session), $before, 'by the module');
    return;
}


# ---- B28: what the client itself was told last is what counts ----

sub cancelled {
    my $c = client($nginx);
    my $mine = sub { scalar $fake->keepalives(session => $c->session) };
    my $lost = rpc_error(404, -32001, 'Session not found');
    my $rule = sub {
        $fake->rule(do => $_[0], times => 1,
                    when => { keepalive => 1, session => $c->session });
    };

    # a success while the second opinion is on its way

    $c->open_session(1);
    $rule->({ %$lost, delay => 300 });
    $rule->($lost);
    wait_for(sub { $mine->() >= 2 }, 2);
    is($c->call->status, 200, 'a success before the second opinion');
    wait_for(sub { $mine->() >= 3 }, 2);
    cmp_ok($mine->(), '>=', 3, 'keepalives go on');

    # a success between one that is suspect and the next

    for my $turn (1 .. 3) {
        my $had = $mine->();

        $rule->({ status => 500, body => '' }) for 1, 2;
        wait_for(sub { $mine->() >= $had + 2 }, 2);
        pause_ms(50);
        is($c->call->status, 200, 'suspect, then a success');
    }

    my $had = $mine->();

    eventually(sub { $mine->() > $had }, 'keepalives still go on');
    ok($nginx->peer($fake)->{representative}, 'the peer is representative');
    return;
}


# ---- what a keepalive is told reaches no client ----

sub keepalive_tells_nobody {
    for my $case ([lost => rpc_error(404, -32001, 'Session not found')],
                  [text => rpc_error(400, -32000, $no_session)],
                  [html => { status => 404, type => 'text/html',
                             body => $html }])
    {
        my ($name, $do) = @$case;
        my $c = client($nginx);

        $c->open_session(1);
        $fake->rule(when => { keepalive => 1, session => $c->session },
                    do => $do);

        my $mine = sub { scalar $fake->keepalives(session => $c->session) };

        wait_for(sub { $mine->() >= ($name eq 'html' ? 4 : 2) }, 3);

        my $asked = $mine->();

        cmp_ok($asked, '>=', 2, "$name: confirmed");
        never(sub { $mine->() > $asked }, "$name: then no more", 500);
        confirmed_fresh($c->session);
        is($c->call->status, 200, "$name: the client is served");
        is($nginx->peer($fake)->{state}, 'connected', "$name: connected");
    }

    return;
}


# The second opinion comes on a connection of its own.

sub confirmed_fresh {
    my ($session) = @_;

    my ($one, $two) = $fake->keepalives(session => $session);

    is($two->{n}, 1, 'confirmed on a fresh connection');
    cmp_ok($two->{t} - $one->{t}, '<', 180, 'at once');
    return;
}


# ---- B28: keepalives that do not reach whom the clients reach ----

sub contradicted {
    my $c = client($nginx);

    $c->open_session(1);
    $fake->rule(when => { keepalive => 1 },
                do => rpc_error(404, -32001, 'Session not found'));

    for my $n (1 .. 8) {
        my $lost = sub { scalar $fake->keepalives(session => $c->session) };
        my $before = $lost->();

        wait_for(sub { $lost->() >= $before + 2 }, 1);
        $c->call;
        last if exists $nginx->peer($fake)->{representative}
                && !$nginx->peer($fake)->{representative};
    }

    my $peer = $nginx->peer($fake);

    ok(exists $peer->{representative} && !$peer->{representative},
       'not representative, says the status');

    my $sent = $fake->keepalives(uri => '/mcp');

    never(sub { $fake->keepalives(uri => '/mcp') > $sent },
          'and no more keepalives to it', 600);
    is($c->call->status, 200, 'clients are served');
    is($peer->{state}, 'connected', 'it stays connected');
    return;
}
