#!/usr/bin/perl

# The status page has every field, and nobody's secrets.

use lib 't/lib';
use MCP::Test;
use MCP::Util qw(project_root slurp);

my $fake = fake();
my $nginx = nginx(
    fakes => [$fake], level => 'debug',
    upstream => 'mcp_keepalive zone=mcp:1m interval=150ms;'
              . 'mcp_keepalive_pass_header Authorization;');
my $c = client($nginx, headers => [['Authorization', 'Bearer opensesame']]);

$fake->sessions(ids => ['s3cret-session-id']);
$c->open_session(1);
eventually(sub { $nginx->keepalives('ok') >= 2 }, 'keepalives run');


# ---- fields ----

my $page = $nginx->fetch('/status');
my $status = $page->json;
my $up = $status->{upstreams}{tools};
my $peer = $up->{peers}[0];

is($page->status, 200, 'GET');
like($page->header('Content-Type'), qr{^application/json}, 'Content-Type');
has($status, 'top', qw(module nginx worker time generation zones upstreams));
has($status->{zones}{mcp}, 'zone',
    qw(size used sessions capacity evicted untracked));
has($up, 'upstream', qw(zone sessions streams answers skipped peers));
has($up->{sessions}, 'sessions',
    qw(active ready learned adopted lost deleted expired revived
       revive_failed));
has($up->{streams}, 'streams',
    qw(open opened held heartbeats closed_by_mark closed_by_exit timed_out));
has($up->{answers}, 'answers', qw(session_lost translated unavailable));
has($up->{skipped}, 'skipped', qw(busy rate connections credentials));
has($peer, 'peer',
    qw(name state since_ms reason gone representative budget charges attempts
       next_attempt_ms epoch parks reconnects sessions streams stream_ends
       latency keepalives));
has($peer->{keepalives}, 'keepalives', qw(sent bytes ok));

my $version = MCP::Nginx->version;

is($status->{nginx}, join('.', map { int } $version / 1e6,
                          $version / 1e3 % 1e3, $version % 1e3),
   'nginx version');
like($status->{module}, qr/^\d+\.\d+\.\d+$/, 'module version');
like($status->{time}, qr/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/, 'time');
ok((grep { $_ == $status->{worker} } $nginx->workers), 'pid of a worker');
is($up->{zone}, 'mcp', 'name of the zone');
is($peer->{name}, $fake->addr, 'name of the peer');
is($peer->{state}, 'connected', 'its state');
is($peer->{reason}, '', 'no reason');
is($peer->{sessions}, 1, 'its sessions');
is($peer->{budget}, 5, 'its budget');
is($up->{sessions}{active}, 1, 'active');
is($up->{sessions}{ready}, 1, 'ready');
is($status->{zones}{mcp}{size}, 1_048_576, 'size of the zone');
cmp_ok($status->{zones}{mcp}{used}, '>', 0, 'used');
cmp_ok($status->{zones}{mcp}{used}, '<=', 1_048_576, 'at most all');
is($status->{zones}{mcp}{sessions}, 1, 'sessions in the zone');

my $sent = $fake->keepalives;

cmp_ok($nginx->keepalives('sent'), '>=', $sent, 'sent');
cmp_ok($nginx->keepalives('bytes'), '>', 0, 'bytes');

my $generation = $status->{generation};

$nginx->reload(gone => 1);
is($nginx->status->{generation}, $generation + 1, 'generation after reload');
cmp_ok($nginx->keepalives('sent'), '>=', $sent, 'counters survive it');


# ---- methods and formats ----

my $head = $nginx->fetch('/status', 'HEAD');

is($head->status, 200, 'HEAD');
is($head->body, '', 'without a body');
like($head->header('Content-Type'), qr{^application/json}, 'with its type');

for my $method (qw(POST PUT DELETE)) {
    is($nginx->fetch('/status', $method, 'Content-Length: 0')->status, 405,
       "$method is 405");
}

is($nginx->fetch('/status?format=json')->status, 200, '?format=json');
is($nginx->fetch('/status?format=wrong')->status, 400, 'an unknown format');


# ---- documentation: every field there is, by its whole name ----

my $described = slurp(project_root() . '/docs/status.md');

for my $path (paths($status->{zones}{mcp}),
              paths({ %$up, peers => undef, zone => undef }),
              paths({ %$peer, keepalives => { sent => 0, bytes => 0 } }))
{
    like($described, qr/^\| `\Q$path\E` \|/m, "$path is described");
}


# ---- the same from whichever worker answers ----

my $twin = nginx(fakes => [$fake], workers => 2,
                 upstream => 'mcp_keepalive zone=mcp:1m interval=off;');
my %said;

client($twin)->open_session(1);

for (1 .. 200) {
    my $now = $twin->status;
    my $worker = delete $now->{worker};

    delete $now->{time};
    $_->{since_ms} = 0 for @{ $now->{upstreams}{tools}{peers} };
    $said{$worker} = $now;
    last if keys %said == 2;
}

my @said = values %said;

SKIP: {
    skip('one worker took all', 1) if @said < 2;
    is_deeply($said[0], $said[1], 'both workers say the same');
}

$twin->stop;


# ---- secrets ----

for my $word ('opensesame', 's3cret-session-id') {
    unlike($nginx->fetch('/status')->body, qr/$word/, "status: no $word");
    is(scalar(grep { /$word/ } ours()), 0, "error log: no $word");
    is(scalar(grep { /$word/ } $nginx->access_lines), 0,
       "access log: no $word");
}

finish();


# nginx itself writes all headers at debug level; what we write must be
# free of them.

sub ours {
    return $nginx->log_lines(
        qr/mcp(?![-\/])[^"]*:|\[(?:info|notice|warn|error)\]/);
}


# "a.b" of a tree of objects.

sub paths {
    my ($object, $prefix) = @_;

    return map {
        my $path = defined $prefix ? "$prefix.$_" : $_;
        ref $object->{$_} eq 'HASH' ? paths($object->{$_}, $path)
            : defined $object->{$_} ? $path : ();
    } sort keys %$object;
}


sub has {
    my ($object, $name, @fields) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my @missing = grep { !exists $object->{$_} } @fields;

    ok(!@missing, "$name: has its fields") or diag("misses @missing");
    return;
}
