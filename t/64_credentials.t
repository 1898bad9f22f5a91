#!/usr/bin/perl

# Credentials, identities and limits: who may change a session's fate, what
# keepalives carry, when they stop, and that nothing of it is left or shown.

use lib 't/lib';
use MCP::Fake ();
use MCP::Lost;
use MCP::Test;

my $fake = fake();
my $secret = 'tok-' . 'Zq7' x 4;

my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";';
my %upstream = (
    bare => 'interval=150ms',
    passed => 'interval=150ms; mcp_keepalive_pass_header Authorization',
    both => 'interval=150ms; mcp_keepalive_pass_header Authorization X-Key',
    owned => 'interval=150ms; mcp_keepalive_pass_header Authorization',
    rated => 'interval=150ms rate=20',
    limited => 'interval=150ms jitter=0%',
    wiped => 'interval=150ms; mcp_keepalive_pass_header Authorization X-Key',
);

my $nginx = nginx(
    fakes => [$fake], workers => 2,
    upstream => 'mcp_keepalive zone=mcp:1m interval=10s;',
    http => 'upstream stock { server %%fake1%%; }'
          . join('', map { "upstream $_ { server %%fake1%%;"
                           . " mcp_keepalive zone=mcp $upstream{$_}; }" }
                     sort keys %upstream),
    server => join('', map { "location /$_ { $proxy proxy_pass http://$_; }" }
                       sort(keys %upstream), 'stock'));

subtest B63 => \&no_credentials;
subtest B65 => \&expired;
subtest B66 => \&inside_success;
subtest B67 => \&limits;
subtest B68 => \&other_identity;
subtest stranger => \&stranger;
subtest stranger_later => \&stranger_on_lost;
subtest rotation => \&rotation;
subtest wiped => \&wiped;
subtest shown => \&never_shown;

finish();


# ---- helpers ----

sub with {
    my ($uri, $token, @more) = @_;

    return client($nginx, uri => "/$uri",
                  headers => [defined $token ? ['Authorization', $token] : (),
                              @more]);
}


sub probes {
    my ($c) = @_;

    return $fake->keepalives(session => $c->session);
}


sub tokens {
    return map { join '|', MCP::Fake::values_of($_, 'Authorization') } @_;
}


# No keepalive for some intervals.

sub silent {
    my ($c, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $count = probes($c);

    return never(sub { probes($c) > $count }, $name, 400);
}


# Keepalives come, now and from now on.

sub running {
    my ($c, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $count = probes($c);

    return eventually(sub { probes($c) >= $count + 2 }, $name);
}


sub as_it_was {
    my ($upstream) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    my $peer = $nginx->upstream($upstream)->{peers}[0];

    return is("$peer->{state} $peer->{epoch} $peer->{charges}",
              'connected 0 0', 'the peer is as it was');
}


# ---- B63 ----

sub no_credentials {
    my $secured = with(bare => "Bearer $secret-b63");
    my $open = with('bare');

    $_->open_session(1) for $secured, $open;

    running($open, 'a session without credentials is probed');
    is(scalar probes($secured), 0, 'one with is not');
    cmp_ok($nginx->upstream('bare')->{skipped}{credentials}, '>=', 1,
           'skipped for want of them');

    # a server that wants some from everybody

    my @three = map { with('bare') } 1 .. 3;

    $_->open_session(1) for @three;
    $fake->rule(do => { status => 401, body => '' },
                when => { keepalive => 1, session => $_->session }) for @three;

    eventually(sub { $nginx->keepalives('auth', 'bare') >= 3 },
               'three in a row: auth');
    as_it_was('bare');
    silent($three[0], 'no more of them');
    is($three[0]->call->status, 200, 'its client is served');
    silent($three[0], 'and that is no reason to ask again');
    return;
}


# ---- B65 ----

sub expired {
    my $c = with(passed => "Bearer $secret-1");
    my $set = sub { $c->{headers} = [['Authorization', $_[0]]] };
    my $refuse = sub {
        $fake->rule(do => { status => 401, body => '', headers => [
                        ['WWW-Authenticate', 'Bearer']] },
                    when => { keepalive => $_[0], session => $c->session });
    };

    $c->open_session(1);
    running($c, 'keepalives with the first token');

    my $before = probes($c);

    $refuse->(1);
    wait_for(sub { probes($c) > $before }, 2);
    $before = probes($c);
    silent($c, 'expired: one 401, no more');
    as_it_was('passed');
    is($c->call->status, 200, 'the client may still use it');
    is(scalar probes($c), $before, 'one for this token');

    # another one, first without success

    $refuse->(0);
    $set->("Bearer $secret-2");

    my $stock = client($nginx, uri => '/stock', session => $c->session);

    is_same($c->call, $stock->call, '401 to the client');
    silent($c, 'another token that does not work either');
    $fake->clear;
    is($c->call->status, 200, 'now it does');
    running($c, 'keepalives go on');
    is((tokens(probes($c)))[-1], "Bearer $secret-2", 'with the new one');
    is(scalar(grep { $_ eq "Bearer $secret-2" }
              tokens((probes($c))[0 .. $before - 1])), 0, 'not before');
    return;
}


# ---- B66: a failure inside a success is none of ours ----

sub inside_success {
    my $c = with('passed');
    my $body = '{"jsonrpc":"2.0","id":0,"result":{"isError":true,"content":'
             . '[{"type":"text","text":"401 Unauthorized: token expired,'
             . ' session not found"}]}}';

    $c->open_session(1);
    $fake->rule(do => { type => 'application/json', body => $body },
                when => { session => $c->session });
    is($c->call->body, $body, 'the client gets it');
    running($c, 'and keepalives it is ok for');
    is($nginx->upstream('passed')->{sessions}{lost}, 0, 'nothing is lost');
    as_it_was('passed');
    $fake->clear;
    return;
}


# ---- B67 ----

sub limits {
    my @cases = (
        [seconds => sub { 2 }, 2000 - 25, 3000],
        [date => sub { http_date(time + 2) }, 900, 3500],
        [none => sub { undef }, 125, 900],
        [nonsense => sub { 'soon' }, 125, 900],
    );
    my %client;

    for my $case (@cases) {
        my ($name, $value) = @$case;
        my $c = $client{$name} = with('limited');
        my $after = $value->();

        $c->open_session(1);
        $fake->rule(do => { status => 429, body => '', defined $after
                            ? (headers => [['Retry-After', $after]]) : () },
                    when => { keepalive => 1, session => $c->session });
    }

    # a busy client needs none

    my $busy = with('limited');

    $busy->open_session(1);

    my $last = now_ms();
    my ($end, $gap) = ($last + 600, 0);

    while ($last < $end) {
        $busy->call;
        pause_ms(30);

        my $now = now_ms();

        $gap = $now - $last if $now - $last > $gap;
        $last = $now;
    }

    # a machine that stood still for an interval let one come due

    is($gap < 100 ? scalar probes($busy) : 0, 0,
       'client traffic replaces keepalives') or diag("gap $gap ms");

    for my $case (@cases) {
        my ($name, undef, $least, $most) = @$case;
        my ($one, $two);

        wait_for(sub { ($one, $two) = probes($client{$name}); $two }, 5);
        $one->{t} //= 0;

        my $gap = ($two->{t} // 0) - $one->{t};

        ok($gap >= $least && $gap <= $most, "Retry-After, $name")
            or diag("the next one came after $gap ms");
    }

    is($nginx->upstream('limited')->{sessions}{active}, 5, 'all are alive');
    cmp_ok($nginx->keepalives('limited', 'limited'), '>=', 4, 'limited');
    as_it_was('limited');
    is($client{seconds}->call->status, 200, 'clients are not limited by it');

    # many sessions at one peer

    my @many = map { with('rated') } 1 .. 60;

    each_client(\@many, [qw(initialize initialized)]);

    my $began = now_ms();
    my $had = $fake->keepalives(uri => '/rated');

    wait_for(sub { now_ms() - $began > 1500 }, 2);

    my $sent = $fake->keepalives(uri => '/rated') - $had;
    my $seconds = (now_ms() - $began) / 1000;

    cmp_ok($sent, '<=', 20 * $seconds + 20, 'never more than rate')
        or diag("in $seconds s");
    cmp_ok($sent, '>=', 10 * $seconds, 'nor much less');
    return;
}


sub http_date {
    my ($time) = @_;

    my @t = gmtime $time;

    return sprintf '%s, %02d %s %d %02d:%02d:%02d GMT',
        (qw(Sun Mon Tue Wed Thu Fri Sat))[$t[6]], $t[3],
        (qw(Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec))[$t[4]],
        1900 + $t[5], @t[2, 1, 0];
}


# ---- B68 ----

sub other_identity {
    my @cases = (
        [words => rpc_error(403, -32000,
                            'Session belongs to a different user'), 4],
        [bare => { status => 403, body => '' }, 4],
        [scope => rpc_error(403, -32000, 'insufficient scope'), 1],
    );
    my @clients = map { with('bare') } @cases;

    for my $i (0 .. $#cases) {
        $clients[$i]->open_session(1);
        $fake->rule(do => $cases[$i][1],
                    when => { keepalive => 1,
                              session => $clients[$i]->session });
    }

    for my $i (0 .. $#cases) {
        my ($name, undef, $most) = @{ $cases[$i] };
        my $c = $clients[$i];

        wait_for(sub { probes($c) >= $most }, 2);
        silent($c, "$name: keepalives stop");
        is(scalar probes($c), $most, "$name: after $most");
        is($c->call->status, 200, "$name: the client is served");
    }

    is($nginx->upstream('bare')->{sessions}{lost}, 0, 'nothing is lost');
    as_it_was('bare');
    return;
}


# ---- the owner of a session, and somebody who only knows its id ----

sub stranger {
    my @answers = (
        [json_404 => rpc_error(404, -32001, 'Session not found')],
        [page_404 => { status => 404, type => 'text/html', body => '<p>' }],
        [lost_400 => rpc_error(400, -32000, 'No valid session ID provided')],
        [lost_200 => rpc_error(200, -32000, 'Session not found')],
        [unauthorized => { status => 401, body => '' }],
        [forbidden => rpc_error(403, -32000, 'Session expired')],
    );
    my $owner = with(owned => 'Bearer owner');

    $owner->open_session(1);
    running($owner, 'the owner has its keepalives');

    for my $case (@answers) {
        for my $token ('Bearer thief', undef) {
            my ($name, $do) = @$case;
            my $thief = with(owned => $token);
            my $stock = client($nginx, uri => '/stock');

            $name .= defined $token ? '' : ', no token';
            $_->{session} = $owner->session for $thief, $stock;
            $fake->rule(do => { %$do, keep => 1 },
                        when => { keepalive => 0,
                                  session => $owner->session });

            for my $how ('start_call', $do->{status} < 300 ? () :
                         qw(start_get start_delete)) {
                is_same($thief->wait($thief->$how),
                        $stock->wait($stock->$how), "$name: $how");
            }

            $fake->clear;
            is($owner->call->status, 200, "$name: the owner is served");
        }
    }

    # a 2xx that says "lost" is no success, and makes nobody the owner

    my $thief = with(owned => 'Bearer thief');

    $thief->{session} = $owner->session;
    $fake->rule(do => rpc_error(200, -32000, 'Session not found'),
                when => { keepalive => 0, session => $owner->session });
    $thief->call;
    running($owner, 'after a 200 that says lost');
    $fake->clear;

    my $said = $nginx->upstream('owned');

    is($said->{sessions}{active}, 1, 'the session is there');
    is($said->{sessions}{lost}, 0, 'it was never lost');
    is($said->{answers}{session_lost}, 0, 'no answer by the module');
    is($said->{answers}{translated}, 0, 'none translated');

    # a DELETE that a careless server takes, or does not

    for my $status (200, 204, 405) {
        my $thief = with(owned => 'Bearer thief');

        $thief->{session} = $owner->session;
        $fake->rule(do => { status => $status, body => '', keep => 1 },
                    when => { method => 'DELETE' });
        is($thief->delete_session->status, $status, "DELETE: $status");
        $fake->clear;
        is($nginx->upstream('owned')->{sessions}{active}, 1,
           'the session is there');
    }

    running($owner, 'the owner still has its keepalives');
    is(scalar(grep { $_ ne 'Bearer owner' } tokens(probes($owner))), 0,
       'all of them with its own token');

    # initialize with the id of somebody else

    $thief->{session} = $owner->session;
    is($thief->initialize->status, 200, 'initialize with its id');
    is($nginx->upstream('owned')->{sessions}{active}, 2,
       'is one more session');
    running($owner, 'and no end of the other');
    $thief->delete_session;

    # the owner can do all that

    $fake->rule(do => rpc_error(400, -32000, 'No valid session ID provided'),
                when => { keepalive => 0, session => $owner->session });
    is_lost($owner->call, 'the owner itself');
    is($nginx->upstream('owned')->{sessions}{lost}, 1, 'loses it');
    $fake->clear;
    return;
}


sub stranger_on_lost {
    my $owner = with(owned => 'Bearer owner');

    $owner->open_session(1);
    $fake->forget($owner->session);
    $owner->call;
    is_lost($owner->call, 'lost for its owner');

    my $before = $fake->requests(session => $owner->session);

    for my $token ('Bearer thief', undef) {
        my $thief = with(owned => $token);
        my $stock = client($nginx, uri => '/stock');

        $_->{session} = $owner->session for $thief, $stock;
        is_same($thief->call, $stock->call, 'a stranger asks the server');
    }

    is(scalar $fake->requests(session => $owner->session), $before + 4,
       'each time');
    is_lost($owner->call, 'still lost for its owner');
    return;
}


# ---- rotation ----

sub rotation {
    my $c = with(both => 'Bearer first', ['X-Key', 'k1']);

    $c->open_session(1);
    running($c, 'keepalives');
    is_deeply([MCP::Fake::values_of((probes($c))[-1], 'X-Key')], ['k1'],
              'with both headers');

    my $since = probes($c);

    $c->{headers} = [['Authorization', 'Bearer second'], ['X-Key', 'k2']];
    is($c->call->status, 200, 'the client has another token');

    running($c, 'keepalives go on');

    my @later = (probes($c))[$since + 1 .. probes($c) - 1];

    is_deeply([grep { $_ ne 'Bearer second' } tokens(@later)], [],
              'with the new token');
    is_deeply([grep { $_ ne 'k2' }
               map { MCP::Fake::values_of($_, 'X-Key') } @later], [],
              'and the new key');

    # the old one is a stranger's now

    my $old = with(both => 'Bearer first', ['X-Key', 'k1']);

    $old->{session} = $c->session;
    $fake->rule(do => rpc_error(404, -32001, 'Session not found'), times => 1,
                when => { keepalive => 0, session => $c->session });
    is($old->call->status, 404, 'the old token is told lost');
    is($c->call->status, 200, 'the new one goes on');
    is($nginx->upstream('both')->{sessions}{lost}, 0, 'nothing is lost');
    $c->delete_session;
    return;
}


# ---- the zone after the session ----

sub wiped {
    my ($first, $second) = map { "wipe-$_-" . 'x9' x 20 } qw(one two);
    my $c = with(wiped => "Bearer $first", ['X-Key', 'k' x 300]);

    $c->open_session(1);
    running($c, 'keepalives');

    my $worker = ($nginx->workers)[0];

    plan(skip_all => 'cannot look into the zone')
        unless defined zone_holds($worker, $first);

    ok(zone_holds($worker, $first), 'the token is in the zone');

    $c->{headers} = [['Authorization', "Bearer $second"]];
    $c->call;
    ok(zone_holds($worker, $second), 'another one is');
    ok(!zone_holds($worker, $first), 'the old one is wiped');
    ok(!zone_holds($worker, 'k' x 300), 'and the key with it');

    $c->delete_session;
    ok(!zone_holds($worker, $second), 'wiped when the session goes');

    # lost: it gets no keepalives any more

    my $lost = with(wiped => "Bearer $second");

    $lost->open_session(1);
    ok(zone_holds($worker, $second), 'another session with it');
    $fake->forget($lost->session);
    $lost->call;
    is_lost($lost->call, 'lost');
    ok(!zone_holds($worker, $second), 'wiped when it is lost');
    return;
}


# Looks through the shared memory of a process.

sub zone_holds {
    my ($pid, $text) = @_;

    no warnings 'portable';             # of addresses above 32 bits

    open my $maps, '<', "/proc/$pid/maps" or return;
    open my $mem, '<:raw', "/proc/$pid/mem" or return;

    my $found = 0;

    while (my $line = <$maps>) {
        my ($from, $to) = $line =~ /^(\w+)-(\w+) rw-s .*zero/ or next;

        sysseek $mem, hex $from, 0 or return;
        sysread $mem, my ($bytes), hex($to) - hex($from) or return;
        $found = 1 if index($bytes, $text) >= 0;
    }

    return $found;
}


# ---- nowhere to be seen ----

sub never_shown {
    is(scalar($nginx->log_lines(qr/\Q$secret\E|Bearer/)), 0,
       'not in the log');

    my $status = $nginx->fetch('/status')->body;

    is(scalar(() = $status =~ /\Q$secret\E|Bearer/g), 0, 'nor in the status');

    my $all = $nginx->upstream('passed')->{sessions};

    cmp_ok($all->{learned}, '>=', 2, 'of upstreams that have seen it');
    return;
}
