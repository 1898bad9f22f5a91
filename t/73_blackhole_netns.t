#!/usr/bin/perl

# A road that loses every packet: by a filter on the sockets, and by the route
# of a network namespace (as root).  The mark is one line, nothing from before
# is used again, a peer beside it serves.

use lib 't/lib';
use MCP::Peers;
use MCP::Process ();
use MCP::Test;

lost_packets('filter', \&filter);

SKIP: {
    my $ns = namespace();

    skip 'no network namespace here', 1 unless $ns;
    lost_packets('namespace', sub { route($ns, @_) }, $ns);
    ok(1, 'in a namespace');
}

finish();


sub filter {
    my ($fake, $on) = @_;

    $fake->deaf($on);
    return;
}


# ---- a namespace with one address, at the end of a cable ----

sub namespace {
    return if $> != 0;

    my ($near, $far) = ("mcpa$$", "mcpb$$");
    my $net = '10.213.' . (1 + $$ % 250);
    my $pid = MCP::Process::spawn('/dev/null', qw(unshare -n sleep 120));

    my $there = wait_for(sub {
        my ($ours, $its) = map { readlink "/proc/$_/ns/net" } $$, $pid;
        return ($its // '') ne '' && $its ne $ours;
    }, 2);
    my $in = "nsenter -t $pid -n";
    my $ok = $there && !grep { system("$_ >/dev/null 2>&1") }
        "ip link add $near type veth peer name $far netns $pid",
        "ip addr add $net.1/30 dev $near", "ip link set $near up",
        "$in ip addr add $net.2/30 dev $far", "$in ip link set $far up";

    my $ns = { pid => $pid, in => $in, near => $near, ours => "$net.1",
               host => "$net.2", netns => "/proc/$pid/ns/net" };

    return $ns if $ok;

    leave($ns);
    return;
}


sub leave {
    my ($ns) = @_;

    system("ip link del $ns->{near} >/dev/null 2>&1");
    kill 'KILL', MCP::Process::members($ns->{pid});
    waitpid $ns->{pid}, 0;
    return;
}


# What the peer sends goes nowhere, its acknowledgements first of all.

sub route {
    my ($ns, $fake, $on) = @_;

    my $what = $on ? 'add' : 'del';

    system("$ns->{in} ip route $what blackhole $ns->{ours}/32") == 0
        or die "ip route $what failed\n";
    return;
}


# ---- the story ----

sub lost_packets {
    my ($name, $lose, $ns) = @_;

    my $fake = fake($ns ? map { $_ => $ns->{$_} } qw(host netns) : ());
    my $live = fake();
    my $nginx = nginx(
        fakes => [$fake, $live], workers => 4,
        upstream => 'mcp_keepalive zone=mcp:1m interval=300ms timeout=400ms;'
                  . ' mcp_reconnect backoff=400ms backoff_max=400ms budget=99;'
                  . ' keepalive 8;',
        location => 'proxy_connect_timeout 1s;'
                  . ' proxy_next_upstream_timeout 2s;');
    my %at = place($nginx, 20, [$fake, $live]);
    my @pinned = @{ $at{ $fake->{name} } };

    ok(proven($nginx, $fake, $live), "$name: both are proven");
    $lose->($fake, 1);
    state_is($nginx, $fake, 'degraded', $name);

    my @before = keys %{{ conns_of($fake) }};
    my $from = now_ms();
    my @new = each_client([clients($nginx, 20)], [qw(initialize initialized
                                                     call)]);

    is(scalar(grep { $_->status !~ /^20[02]$/ } @new), 0,
       "$name: new sessions are well");
    is(scalar(grep { ($new[3 * $_]->server // '') ne $live->{name} } 0 .. 19),
       0, "$name: they are at the other peer");
    cmp_ok(now_ms() - $from, '<', 900 * slow(), "$name: nobody waited for a"
                                                . ' connect');

    # it does not refuse, so that its sessions may still be there

    my $x = $pinned[0]->call;

    is_unavailable($x, "$name: a pinned session, after the connect timeout");
    cmp_ok($x->ms, '>=', 900, "$name: it was tried");

    # some attempts meanwhile

    eventually(sub { $nginx->peer($fake)->{attempts} >= 2 },
               "$name: attempts");

    my @lines = mcp_lines($nginx, $fake);

    is(scalar(grep { /^\[warn\]/ } @lines), 1, "$name: one warn line")
        or diag(map { "$_\n" } @lines);
    like($lines[-1] // '', qr/^\[warn\] connected -> degraded: .*time/i,
         "$name: with the reason");

    # the road is back, the sessions never went

    $lose->($fake, 0);
    state_is($nginx, $fake, 'connected', $name, 4);

    my @after = each_client(\@pinned, [['call', undef, tag("after $name")], 'call']);

    is(scalar(grep { ($_->server // '') ne $fake->{name} } @after), 0,
       "$name: pinned sessions go on");

    my %old = map { $_ => 1 } @before;
    my @seen = tagged($fake, "after $name");

    is(scalar @seen, scalar @pinned, "$name: at their peer");
    is(scalar(grep { $old{ $_->{conn} } } @seen), 0,
       "$name: on no connection from before");
    is(scalar(grep { $_->{misrouted} } $live->requests), 0,
       "$name: none went astray");

    $nginx->stop;
    $_->kill for $fake, $live;
    leave($ns) if $ns;
    return;
}
