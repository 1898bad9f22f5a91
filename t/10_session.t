#!/usr/bin/perl

# The life of a session in the table: learned, adopted, ready, forgotten,
# expired; and ids that are not for us.

use lib 't/lib';
use MCP::Test;

my $fake = fake();
my $nginx = nginx(
    fakes => [$fake], connections => 256,
    http => 'upstream short { server %%fake1%%;'
          . ' mcp_keepalive zone=short:1m interval=100ms max_idle=400ms; }',
    upstream => 'mcp_keepalive zone=mcp:1m interval=off;',
    server => 'large_client_header_buffers 4 16k; proxy_buffer_size 16k;'
            . ' proxy_buffers 8 16k; underscores_in_headers on;'
            . ' location /short { proxy_pass http://short;'
            . ' proxy_buffering off; }');

my (%was, $untracked);


# ---- learn, ready, forget ----

my $c = client($nginx);

$c->initialize;
grew('initialize: learned', learned => 1, active => 1);
$c->initialized;
grew('a second 2xx: ready', ready => 1);
$c->call;
grew('a call changes nothing');
$c->initialize;
grew('initialize with the old id: another one in its place', learned => 1,
     deleted => 1, ready => -1);
$c->delete_session;
grew('DELETE: forgotten', deleted => 1, active => -1);
is($c->call->status, 404, 'a request after DELETE goes to the server');
grew('and is not learned');

my $other = client($nginx);

$other->open_session(1);
grew('another one', learned => 1, active => 1, ready => 1);
$fake->rule(when => { method => 'DELETE' }, times => 1,
            do => { status => 405 });
is($other->delete_session->status, 405, 'DELETE answered 405');
grew('is not forgotten');
is($other->call->status, 200, 'and still served');

$fake->rule(when => { rpc => 'initialize' }, times => 1,
            do => { status => 500 });
is(client($nginx)->initialize->status, 500, 'initialize answered 500');
grew('nothing is learned');

$fake->sessions(none => 1);
is(client($nginx)->initialize->status, 200, 'no session issued');
grew('nothing is learned from it');
$fake->sessions(none => 0);


# ---- adopt ----

$fake->sessions(stateless => 1);
$fake->rule(do => { no_echo => 1 });

my $stray = client($nginx, session => 'an-id-from-before');

is($stray->call->status, 200, 'an unknown id is served');
grew('a 2xx: adopted', adopted => 1, active => 1);
$stray->call;
grew('a second 2xx: not yet ready');
$stray->call;
grew('a third 2xx: ready', ready => 1);

$fake->sessions(stateless => 0);
is(client($nginx, session => 'never-seen')->call->status, 404,
   'an id that the server refuses');
grew('is not adopted');
$fake->clear;


# ---- ids that are tracked, and not ----

for my $length (1, 36, 4096) {
    issued("an id of $length bytes", 'a' x $length, 1);
}

issued('an id of 4097 bytes', 'b' x 4097, 0);
issued('an id with a control byte', "c\001c", 0);
issued('an id with a space inside', 'd d', 0);
issued('an id with a DEL', "e\177e", 0);
issued('an id beyond ASCII', "f\xc3\xa9", 0);

$fake->sessions(doubled => 1);
is(client($nginx)->initialize->status, 200, 'two ids in one answer: served');
untracked('two ids in one answer');
$fake->sessions(doubled => 0);

my $twice = client($nginx);

$twice->open_session;
is($twice->call('echo', ['Mcp-Session-Id', 'second'])->status, 200,
   'two ids in one request: served');
untracked('two ids in one request');

my $raw = "POST /mcp HTTP/1.1\r\nHost: tools.example\r\n"
        . "Connection: close\r\nContent-Type: application/json\r\n"
        . "Mcp-Session-Id: \r\nContent-Length: 2\r\n\r\n{}";

is(client($nginx)->raw($raw)->status, 404, 'an empty id: up to the server');
grew('is not tracked');


# ---- expire ----

my $idle = client($nginx, uri => '/short');

$idle->open_session;
is($nginx->upstream('short')->{sessions}{active}, 1, 'a short life');
eventually(sub { $nginx->upstream('short')->{sessions}{active} == 0 },
           'ends after max_idle', 3);
is($nginx->upstream('short')->{sessions}{expired}, 1, 'counted');
is($idle->call->status, 200, 'the server still knows it');

my $streaming = client($nginx, uri => '/short');

$streaming->open_session;

my $stream = $streaming->get;

is($stream->status, 200, 'a session with a stream open');

never(sub { $nginx->upstream('short')->{sessions}{active} < 1 },
      'does not expire', 1200);
$stream->abort;
eventually(sub { $nginx->upstream('short')->{sessions}{active} == 0 },
           'until the stream has gone', 3);

finish();


# The session counters that changed since the last call, and only those.

sub grew {
    my ($name, %want) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my %now = %{ $nginx->upstream->{sessions} // {} };
    my %diff = map { $_ => $now{$_} - ($was{$_} // 0) }
               grep { $now{$_} != ($was{$_} // 0) } keys %now;

    is_deeply(\%diff, with_ready(\%diff, \%want), $name);
    %was = %now;
    return;
}


# What leaves takes its readiness along; tests need not say so.

sub with_ready {
    my ($diff, $want) = @_;

    return $want if exists $want->{ready} || ($want->{active} // 0) >= 0;
    return { %$want, exists $diff->{ready} && $diff->{ready} < 0
                     ? (ready => $diff->{ready}) : () };
}


sub issued {
    my ($name, $id, $tracked) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $before = sessions_now();

    $fake->sessions(ids => [$id]);

    my $client = client($nginx);
    my $started = $client->initialize;

    is($started->status, 200, "$name: initialize is served");
    is($started->header('Mcp-Session-Id'), $id, "$name: reaches the client");
    is($client->call->status, 200, "$name: a call is served");
    is(sessions_now() - $before, $tracked,
       "$name: " . ($tracked ? 'tracked' : 'not tracked'));

    return if $tracked;
    untracked($name);
    return;
}


sub sessions_now { return $nginx->upstream->{sessions}{learned} // 0 }


sub untracked {
    my ($name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $now = $nginx->status->{zones}{mcp}{untracked};

    cmp_ok($now, '>', $untracked // 0, "$name: counted as untracked");
    $untracked = $now;
    %was = %{ $nginx->upstream->{sessions} // {} };
    return;
}
