#!/usr/bin/perl

# Workers of a test build (BUILD=crash) die in the middle of a change of the
# zone.  Each time the next one in makes the zone anew: what was whole stays.
# 20 times; MCP_LONG=1: 200.

use lib 't/lib';
use MCP::Test;

my $module = ($ENV{MCP_MODULE} // MCP::Util::project_root()
              . '/objs/ngx_mcp_keepalive_module.so')
             =~ s{([^/]+)$}{crash/$1}r;

plan(skip_all => "no $module (BUILD=crash util/build)") unless -f $module;
plan(skip_all => 'for the plain build only')
    if $ENV{MCP_VALGRIND} || ($ENV{MCP_MODULE} // '') =~ m{/asan/|^builtin$};

$ENV{MCP_MODULE} = $module;

my @fakes = fakes(3);

# ids and tokens that take more than one slot of the zone
$_->sessions(length => 90, modern => ['2026-07-28']) for @fakes;

my $nginx = nginx(
    fakes => \@fakes, workers => 4, connections => 2048,
    upstream => upstream('interval=300ms'),
    allow => [qr/\[alert\].* worker process \d+ exited on signal 9/,
              qr/\[alert\].* shared memory zone "mcp" was locked by/]);

my %count = map { $_ => 0 } qw(again deleted misrouted);
my %live;
my $token = 0;


# ---- dying ----

open_sessions(150);

my ($often, $longest) = $ENV{MCP_LONG} ? (200, 300_000) : (20, 15_000);
my $end = now_ms() + $longest * slow();

until ((rebuilds())[0] >= $often || now_ms() > $end) {
    my @some = some(30);
    my @rotate = splice @some, 0, 8;
    my @delete = splice @some, 0, 8;

    new_token($_) for @rotate;
    ask(call => @rotate, @some);
    ask([modern => 'tools/call'], modern_clients(6));
    close_sessions(@delete);
    open_sessions(scalar @delete);
}

my ($rebuilt) = rebuilds();

cmp_ok($rebuilt, '>=', $often, "the zone was torn and made anew $often times")
    or diag("$rebuilt times");
diag("$rebuilt times, " . dropped() . ' records dropped') if $ENV{MCP_LONG};
cmp_ok($count{deleted}, '>=', 20, 'sessions were deleted meanwhile');
cmp_ok($count{again}, '>', 0, 'some requests had to be repeated');


# ---- what stayed ----

ask(call => values %live);
cmp_ok($count{misrouted}, '<=', dropped(),
       'requests reach the peer of their session, unless it was torn')
    or diag("$count{misrouted} did not, " . dropped() . ' records dropped');

# With many sessions a rebuild is so much work that most workers die in it.
# Those that a dying worker opened for nobody expire unless they are used.

close_sessions(some(values(%live) - 40));
$nginx->reload(parts => { upstream => upstream('interval=1500ms'
                                               . ' max_idle=1500ms') })
    for 1, 2;           # see the TODO of t/36_reload.t

my $all;

eventually(sub {
    ask(call => values %live);
    wait_for(sub { defined(($all = $nginx->upstream)->{sessions}) }, 2);
    return $all->{sessions}{active} == values %live;
}, 'active sessions are those in use', 10)
    or diag($all->{sessions}{active} . ' are, not ' . values %live);

my $of_peers = 0;

$of_peers += $_->{sessions} for @{ $all->{peers} };
is($of_peers, $all->{sessions}{active}, 'their peers have as many');

# The places at a peer that a dead worker held are free after six seconds.

$nginx->reload(parts => { upstream => upstream('interval=1500ms') });

my $now = now_ms();
my $silent = sub {
    my %got = map { $_->{session} => 1 } grep { $_->{t} > $now }
              map { $_->keepalives } @fakes;
    return grep { !$got{ $_->session } } values %live;
};

eventually(sub { $silent->() <= dropped() - $count{misrouted} },
           'keepalives go on, unless the session was torn', 15)
    or diag($silent->() . ' get none, ' . dropped() . ' records dropped');


# ---- nothing is left ----

$nginx->reload(parts => { upstream => upstream('interval=100ms'
                                               . ' max_idle=300ms') })
    for 1, 2;

my $status;

eventually(sub {
    $status = $nginx->status;
    $all = ($status->{upstreams} // {})->{tools} // return 0;

    return $all->{sessions}{active} == 0
           && $status->{zones}{mcp}{sessions} == 0;
}, 'all sessions expire', 10)
    or diag(MCP::Util::json_text($status));

is($all->{sessions}{ready}, 0, 'none is ready');
is(scalar(grep { $_->{sessions} } @{ $all->{peers} }), 0, 'no peer has one');
is(scalar @{ $all->{peers} }, 3, 'the peers are three still');

# The upstream and its name; of each peer: itself, name, reason, counters.  What
# modern clients left goes a tick later.

eventually(sub {
    $status = $nginx->status;
    return ($status->{zones}{mcp}{used} // 1e9) <= (2 + 3 * 4) * 240;
}, 'no slot was lost')
    or diag(MCP::Util::json_text($status));
is(scalar $nginx->log_lines(qr/exited on signal (?!9\b)/), 0,
   'no worker died otherwise');

finish();


sub upstream {
    my ($more) = @_;

    return "mcp_keepalive zone=mcp:1m rate=5000 timeout=1s $more;"
         . ' mcp_keepalive_pass_header Authorization; keepalive 8;';
}


# ---- clients ----

sub open_sessions {
    my ($n) = @_;

    my @new = clients($nginx, $n);

    new_token($_) for @new;
    ask(initialize => @new);
    ask(initialized => @new);

    $live{$_} = $_ for grep { !$_->{gone} } @new;
    return;
}


sub modern_clients {
    my ($n) = @_;

    my @new = clients($nginx, $n);

    new_token($_) for @new;
    return @new;
}


sub close_sessions {
    my (@clients) = @_;

    ask(delete => @clients);
    delete @live{@clients};
    $count{deleted} += @clients;
    return;
}


sub new_token {
    my ($client) = @_;

    $client->{headers} = [['Authorization',
                           'Bearer ' . ++$token . '-' . 'x' x 300]];
    return;
}


# Different ones each time, up to n.

sub some {
    my ($n) = @_;

    my @all = values %live;

    for my $i (reverse 1 .. $#all) {
        my $j = int rand $i + 1;
        @all[$i, $j] = @all[$j, $i];
    }

    return splice @all, 0, $n;
}


# All take a step, some at a time, and again if a dying worker gave no answer.
# A client that is told 404 gives its session up.

sub ask {
    my ($step, @clients) = @_;

    my ($name, @args) = ref $step ? @$step : $step;
    my $start = "start_$name";

    while (my @todo = splice @clients, 0, 12) {

        for my $turn (1 .. 500) {
            my @x = map { $_->$start(@args) } @todo;

            MCP::Exchange::drive(\@x, timeout => 3);
            @todo = @todo[grep { !settled($todo[$_], $name, $x[$_], $turn) }
                          0 .. $#todo] or last;
            $count{again} += @todo;
        }

        fail("no answer to $name in 500 turns") for @todo;
    }

    return;
}


sub settled {
    my ($client, $step, $x, $turn) = @_;

    $client->settle($x);

    if ($x->{failed} || !$x->over) {
        $x->abort;
        return 0;
    }

    return 1 if $x->status =~ /^20[02]$/;

    if ($x->status != 404) {
        fail("$step: " . $x->text);
    }
    elsif ($step ne 'delete' || $turn == 1) {
        $count{misrouted}++;
        $client->{gone} = 1;
        delete $live{$client};
    }

    return 1;
}


# ---- what nginx says ----

# How often the zone was made anew, and how many records were dropped in all.

sub rebuilds {
    my @lines = $nginx->log_lines(qr/mcp zone "mcp" rebuilt after a worker/);
    my $sum = 0;

    $sum += /(\d+) records dropped/ ? $1 : 0 for @lines;
    return (scalar @lines, $sum);
}


sub dropped { return (rebuilds())[1] }
