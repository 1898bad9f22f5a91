#!/usr/bin/perl

# Official clients call every 200 ms while two real servers are killed and
# started again in turn: none fails and none has to be started over, but for
# calls that were under way at a kill.  Beside them: clients without revival,
# and clients of a single server.  mcp-remote, which can start over by itself,
# never has to.  Then what a revival costs.
# 4 clients, 3 kills; MCP_LONG=1: 20 of each kind, 20 kills.
# MCP_CLIENTS=v1,v2,mcp-remote takes some kinds.

use lib 't/lib';
use IO::Handle ();
use MCP::Sdk ();
use MCP::SdkClient ();
use MCP::SdkTest qw(skip_unless);
use MCP::Peers;
use MCP::Test;
use MCP::Util qw(json_data project_root slurp work_dir);
use Time::HiRes ();

my $kind = $ENV{MCP_SERVER} // 'v1 sessions';
my ($count, $kills, $probes) = $ENV{MCP_LONG} ? (20, 20, 300) : (4, 3, 60);

my %asked = map { $_ => 1 }
            split /,/, $ENV{MCP_CLIENTS} // 'v1,v2,mcp-remote';
my @sdks = grep { $asked{$_} }
           MCP::Sdk->new('v2 dual')->version ? qw(v1 v2) : ('v1');

# a process for each

my @remotes = grep { $asked{$_} && !MCP::SdkClient::missing() } 'mcp-remote';

skip_unless($kind);
plan(skip_all => 'none of these clients') unless @sdks || @remotes;
diag('without mcp-remote: ', MCP::SdkClient::missing())
    if $asked{'mcp-remote'} && !@remotes;

my @servers = map { MCP::Sdk->new($kind)->start } 1, 2;
my ($one, $two) = map { "server " . $_->addr . ';' } @servers;
my $options = 'mcp_keepalive zone=mcp; mcp_reconnect backoff=200ms'
            . ' backoff_max=400ms budget=100; keepalive 16;';
my $proxy = 'proxy_buffering off; proxy_http_version 1.1;'
          . ' proxy_set_header Connection ""; proxy_pass http://';

my $nginx = nginx(
    workers => 2, servers => [map { $_->addr } @servers],
    upstream => 'mcp_keepalive zone=mcp:1m; ' . $options =~ s/^[^;]*;//r
              . ' mcp_revive on;',
    http => "upstream plain { $one $two $options }"
          . "upstream single { $one $options mcp_revive on; }",
    server => "location /plain { ${proxy}plain; }"
            . "location /single { ${proxy}single; }"
            . "location = /plain/mcp { ${proxy}plain/mcp; }"
            . "location = /single/mcp { ${proxy}single/mcp; }");

my %group = ((map {
    ("$_ revived" => [$_, '/mcp', $count], "$_ plain" => [$_, '/plain/mcp', 4])
    } @sdks, @remotes),
    map { ("$_ single" => [$_, '/single/mcp', $count]) } @sdks);
my (%pipe, @kills);

start_clients($_, @{ $group{$_} }) for sort keys %group;

my $ready = wait_for(sub {
    return !grep { (grep { $_->{ready} } lines($_)) < $group{$_}[2] }
           keys %group;
}, @remotes ? 150 : 30);

ok($ready, 'all clients are connected') or finish(), exit;
pause_ms(600);

for my $n (1 .. $kills) {
    kill_one($servers[($n - 1) % 2], $n);
}

pause_ms(1500);

my $end = now();

close delete $pipe{$_} for keys %pipe;

judge_revived($_) for map { "$_ revived" } @sdks, @remotes;
judge_plain($_) for map { "$_ plain" } @sdks;
judge_remote($_) for map { "$_ plain" } @remotes;
judge_single($_) for map { "$_ single" } @sdks;
is($nginx->upstream->{sessions}{revive_failed}, 0, 'no revival has failed');
cost();

my @bad = map { $_->kill ? () : $_ } @servers;

is(scalar @bad, 0, 'no server is left');
finish();


# ---- clients ----

sub now { return int(Time::HiRes::time() * 1000) }


sub start_clients {
    my ($name, $sdk, $uri, $n) = @_;

    my $file = work_dir() . '/' . $name =~ s/ /-/r;
    my $script = project_root() . '/t/sdk/clients.mjs';
    my $url = 'http://127.0.0.1:' . $nginx->port . $uri;

    local $ENV{MCP_REMOTE_CONFIG_DIR} = "$file.remote";
    local $ENV{HOME} = work_dir();

    open $pipe{$name}, '|-', 'sh', '-c',
        'exec node "$@" >"$0" 2>"$0.err"', $file, $script, $sdk, $url, $n, 200
        or die "node: $!\n";
    $group{$name}[3] = $file;
    return;
}


sub lines {
    my ($name) = @_;

    return grep { $_ } map { json_data($_) }
           split /\n/, slurp($group{$name}[3]);
}


# ---- a kill ----

sub kill_one {
    my ($server, $n) = @_;

    my $kill = { at => now(), first => $server == $servers[0] };

    $server->kill;
    $kill->{dead} = now();
    push @kills, $kill;
    pause_ms(800);
    $server->start;
    $kill->{up} = now();

    # the other one is not to die before this one is used again

    my $ok = wait_for(sub {
        return !grep { in_state($nginx, $server->addr, 'degraded', $_)
                       || in_state($nginx, $server->addr, 'parked', $_) }
               qw(tools plain single);
    }, 8);

    ok($ok, "kill $n: the server is back");
    note("kill $n: $server->{port} from $kill->{at} to $kill->{up}");
    pause_ms(400);
    return;
}


# ---- what became of the calls ----

# (all calls, failed ones that were under way at a kill, other failed ones)

sub calls {
    my ($name) = @_;

    my @calls = grep { $_->{began} } lines($name);
    my @failed = grep { defined $_->{error} } @calls;

    return (\@calls, [grep { my @at = under_way($_); @at } @failed],
            [grep { my @at = under_way($_); !@at } @failed]);
}


# The kills at which it may have been sent and not answered.


sub under_way {
    my ($call) = @_;

    return grep { $call->{began} <= $_->{dead}
                  && $call->{ended} >= $_->{at} } @kills;
}


# How many of one client's at one kill.

sub often {
    my ($call, @calls) = @_;

    my ($kill) = under_way($call);

    return scalar grep { $_->{client} == $call->{client}
                         && (under_way($_))[0] == $kill } @calls;
}


sub judge_revived {
    my ($name) = @_;

    my ($calls, $sent, $failed) = calls($name);

    is(scalar @$failed, 0, "$name: no call has failed")
        or diag(map { "client $_->{client}: $_->{error}\n" }
                grep { defined } @$failed[0 .. 3]);
    is(scalar(grep { $_ > 1 } values %{{ map { $_ => often($_, @$sent) }
                                         @$sent }}), 0,
       "$name: at most one of a client's was under way at a kill");
    is(scalar(grep { $_->{gave_up} } lines($name)), 0,
       "$name: no client has given up its stream");
    is(scalar(grep { $_->{anew} || $_->{exited} } lines($name)), 0,
       "$name: none has begun a new session");
    cmp_ok(scalar @$calls, '>=', $group{$name}[2] * 5 * $kills,
           "$name: there were calls");

    my %last = map { $_->{client} => $_ } @$calls;

    is(scalar(grep { !defined $_->{error} && $_->{ended} >= $end - 2000 }
              values %last), $group{$name}[2], "$name: in the end all go on");

    my @after = sort { $a <=> $b } map { $_->{ended} - $_->{began} }
                grep { my $call = $_;
                       grep { $call->{ended} >= $_->{at}
                              && $call->{began} <= $_->{up} } @kills } @$calls;

    diag(sprintf '%s: calls while a server is away: median %d ms, p99 %d ms,'
         . ' at most %d ms', $name, @after[@after / 2, @after * 0.99, -1]);
    diag(sprintf '%s: %d clients, %d kills, %d calls: %d failed, %d under'
         . ' way at a kill; no client started over', $name, $group{$name}[2],
         $kills, scalar @$calls, scalar @$failed, scalar @$sent);
    return;
}


sub judge_plain {
    my ($name) = @_;

    my ($calls, $sent, $failed) = calls($name);
    my %last = map { $_->{client} => $_ } @$calls;
    my $dead = grep { defined $_->{error} } values %last;

    cmp_ok(scalar @$failed, '>', 0, "$name: without revival calls fail");
    is($dead, $group{$name}[2], "$name: and every client has to be restarted");
    diag(sprintf '%s: %d clients, %d kills, %d calls: %d failed, %d under way'
         . ' at a kill; %d clients want a restart', $name, $group{$name}[2],
         $kills, scalar @$calls, scalar @$failed, scalar @$sent, $dead);
    return;
}


# Told 404 it begins a new session by itself, where an SDK is lost.

sub judge_remote {
    my ($name) = @_;

    my ($calls, $sent, $failed) = calls($name);
    my %last = map { $_->{client} => $_ } @$calls;
    my $dead = grep { defined $_->{error} } values %last;
    my @anew = grep { $_->{anew} } lines($name);
    my %anew = map { $_->{client} => 1 } @anew;

    is(scalar keys %anew, $group{$name}[2],
       "$name: without revival each has begun a new session");
    is($dead, 0, "$name: and goes on in it");
    diag(sprintf '%s: %d clients, %d kills, %d calls: %d failed, %d under way'
         . ' at a kill; %d clients want a restart, %d new sessions', $name,
         $group{$name}[2], $kills, scalar @$calls, scalar @$failed,
         scalar @$sent, $dead, scalar @anew);

    my %why;

    $why{$_->{error}}++ for @$failed;
    note("$name: $why{$_} failed: $_") for sort keys %why;
    return;
}


# Of the first server alone: failures while it is down, none before or after.

sub judge_single {
    my ($name) = @_;

    my ($calls, undef, undef) = calls($name);
    my @failed = grep { defined $_->{error} } @$calls;
    my @down = grep { $_->{first} } @kills;
    my @late = grep { my $call = $_;
                      !grep { $call->{ended} >= $_->{at}
                              && $call->{began} <= $_->{up} } @down } @failed;
    my @other = grep { my @at = under_way($_);
                       !@at && $_->{error} !~ /503|Service unavailable/
                     } @failed;

    cmp_ok(scalar @failed, '>', 0, "$name: calls fail while it is down");
    is(scalar @other, 0, "$name: with 503") or diag($other[0]{error});
    is(scalar @late, 0, "$name: none fails afterwards")
        or diag(map { "client $_->{client}: $_->{error}\n" }
                grep { defined } @late[0 .. 3]);
    diag(sprintf '%s: %d clients, %d calls: %d failed while it was down, %d'
         . ' afterwards', $name, $group{$name}[2], scalar @$calls,
         scalar @failed, scalar @late);
    return;
}


# ---- what a revival costs ----

# The server ends a session behind nginx's back; the next call brings it back.
# Beside it: a plain call, and initialize, initialized and a call.

sub cost {
    my (@call, @begin, @revived);

    for (1 .. $probes) {
        my $c = client($nginx, uri => '/single/mcp', keepalive => 1,
                       version => $MCP::Sdk::legacy);
        my $from = us();

        $c->initialize;
        $c->initialized;
        $c->call;
        push @begin, us() - $from;

        $from = us();
        $c->call;
        push @call, us() - $from;

        my $behind = MCP::Client->new(
            port => $servers[0]{port}, host => $servers[0]->addr,
            version => $c->{version}, session => $c->session);

        $behind->delete_session;
        $from = us();

        my $x = $c->call;

        push @revived, us() - $from if $x->status == 200;

        # "rate" is 50 a second
        pause_ms(20);
    }

    is(scalar @revived, $probes, 'cost: all were revived') or return;

    my ($call, $begin, $revived) = map { [sort { $a <=> $b } @$_] }
                                   \@call, \@begin, \@revived;
    my @show = map { my $at = $_; map { $_->[@$_ * $at] / 1000 }
                     $revived, $call, $begin } 0.5, 0.99;

    cmp_ok($show[0], '<=', 3 * $show[2] + 20,
           'cost: a revival is about what a client would need by itself');
    diag(sprintf 'cost (ms): revived call, call, initialize + call: median'
         . ' %.1f, %.1f, %.1f; p99 %.1f, %.1f, %.1f', @show);
    diag(sprintf 'cost: a revival adds %.1f ms (median), %.1f ms (p99); %.2f'
         . ' and %.2f of a plain initialize and call', $show[0] - $show[1],
         $show[3] - $show[4], $show[0] / $show[2], $show[3] / $show[5]);
    return;
}


sub us { return MCP::Util::now_us() }
