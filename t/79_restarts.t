#!/usr/bin/perl

# A peer that is killed and started again and again under load: no alert, no
# failure but the promised 404 and 503 and the calls that were in flight at a
# kill, memory flat.  10 restarts; MCP_LONG=1: 50 in two minutes.

use lib 't/lib';
use MCP::Load;
use MCP::Peers;
use MCP::Test;

my ($restarts, $each) = $ENV{MCP_LONG} ? (50, 2400) : (10, 1000);

my ($weak, $strong) = my @fakes = fakes(2);
my $options = 'interval=200ms timeout=1s; mcp_reconnect backoff=200ms'
            . ' backoff_max=400ms budget=5 park=500ms park_max=1s;'
            . ' keepalive 8;';
my $proxy = 'proxy_http_version 1.1; proxy_set_header Connection "";';

my $nginx = nginx(
    fakes => \@fakes, workers => 4,
    upstream => "mcp_keepalive zone=mcp:1m $options",
    http => "upstream alone { server %%fake1%%; mcp_keepalive zone=mcp"
          . " $options }",
    server => "location /alone { $proxy proxy_pass http://alone; }");

my $load = MCP::Load->new($nginx, clients => 16, uris => ['/mcp', '/alone'],
                          pause => 15);
my (@kills, @memory);

for my $n (1 .. $restarts) {
    my $begin = now_ms();

    wait_for(sub { now_ms() - $begin > $each * 0.6 }, 5);

    my $from = now_ms();

    $weak->kill;
    push @kills, { from => $from - 5, to => now_ms() + 5 };
    wait_for(sub { now_ms() - $begin > $each }, 5);
    $weak->start;

    push @memory, memory() if $n == 3 || $n == $restarts;
}

my $last = now_ms();

eventually(sub { in_state($nginx, $weak, 'connected')
                 && in_state($nginx, $weak, 'connected', 'alone') },
           'after the last restart: connected', 5);
cmp_ok(now_ms() - $last, '<', 3000 * slow(), 'soon');
pause_ms(300);

my @done = $load->stop;
my (%count, @wrong);

for my $x (@done) {
    my $what = what($x);

    $count{$what}++;
    push @wrong, $x if $what eq 'other';
}

is(scalar @wrong, 0, 'no failure but 404, 503 and calls in flight at a kill')
    or diag(explain([@wrong[0 .. ($#wrong < 5 ? $#wrong : 5)]]));
cmp_ok($count{ok} // 0, '>=', 50 * $restarts, 'there was load');
cmp_ok($count{404} // 0, '>=', $restarts, 'sessions were lost, and told so');
cmp_ok($count{503} // 0, '>=', $restarts, 'with nobody else: 503');
diag(join ', ', map { "$_: $count{$_}" } sort keys %count);

is($strong->stats->{misrouted}, 0, 'no session went astray');

my @late = grep { $_->{t} > $last + 500 && what($_) ne 'ok' } @done;

is(scalar(grep { what($_) eq '503' } @late), 0, 'in the end none is refused');

# the second half of the restarts does not grow a worker

my ($before, $after) = @memory;

for my $pid (sort keys %$after) {
    my $grown = $after->{$pid} - ($before->{$pid} // $after->{$pid});

    # a sanitizer keeps what was freed

    cmp_ok($grown, '<=', 1024, "worker: memory is flat")
        || diag("$grown kB, to $after->{$pid}") if slow() == 1;
}

is(scalar keys %$after, scalar(grep { $before->{$_} } keys %$after),
   'no worker has died');

# the lines of a restart: marked, back; parked in the worst case

my @lines = (mcp_lines($nginx), mcp_lines($nginx, undef, 'alone'));

cmp_ok(scalar @lines, '<=', 10 * $restarts, 'log lines are few');

finish();


# RSS of each worker in kB, without what it shares.

sub memory {
    my %kb;

    for my $pid ($nginx->workers) {
        ($kb{$pid}) = MCP::Util::slurp("/proc/$pid/status")
                      =~ /^RssAnon:\s+(\d+)/m;
    }

    return \%kb;
}


sub what {
    my ($x) = @_;

    return 'ok' if $x->{status} =~ /^20[02]$/;
    return '404' if $x->{status} == 404 && $x->{body} =~ /"code":-32001/;
    return '503' if $x->{status} == 503 && $x->{after}
                    && $x->{body} =~ /"code":-32000/;
    return 'in flight' if $x->{status} =~ /^(?:502|0)$/
        && grep { $_->{to} >= $x->{began} && $_->{from} <= $x->{t} } @kills;
    return 'other';
}
