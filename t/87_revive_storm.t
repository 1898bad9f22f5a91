#!/usr/bin/perl

# All sessions are lost at once and their clients call in the same second:
# "rate" is respected, all are served, each is started once.  300 sessions;
# MCP_LONG=1: 1,000 at the default rate.

use lib 't/lib';
use MCP::Exchange ();
use MCP::Fake ();
use MCP::Peers;
use MCP::Revive;
use MCP::Test;

my ($count, $rate) = $ENV{MCP_LONG} ? (1000, 50) : (300, 100);
my $options = "interval=1h timeout=60s rate=$rate; mcp_reconnect"
            . ' backoff=200ms backoff_max=400ms budget=1000;'
            . ' mcp_revive on; keepalive 32;';

subtest forgotten => \&forgotten;
subtest restarted => \&restarted;
subtest two_servers => \&two_servers;
finish();


# ---- helpers ----

sub started {
    my (@fakes) = @_;

    return nginx(fakes => \@fakes, workers => 4, connections => 4096,
                 upstream => "mcp_keepalive zone=mcp:4m $options");
}


sub opened {
    my ($nginx, $n) = @_;

    my @clients = map { agent($nginx, open => -1) } 1 .. $n;

    each_client(\@clients, [qw(initialize initialized call)], width => 100,
                timeout => 60);
    return @clients;
}


# All call at once; returns what they were answered.

sub storm {
    my (@clients) = @_;

    my @all = map { $_->start_call } @clients;

    MCP::Exchange::drive(\@all, timeout => 70);
    return @all;
}


# By how many these are ahead of the rate at most; a busy server notes them
# late, never early.

sub ahead {
    my ($from, @t) = @_;

    my $most = 0;

    for my $n (0 .. $#t) {
        my $more = $n + 1 - $rate * ($t[$n] - $from) / 1000;

        $most = $more if $more > $most;
    }

    return int $most;
}


# ms between a session's start and its call, sorted.

sub lags {
    my ($from, @clients) = @_;

    my @lags;

    for my $c (@clients) {
        my %at = map { ($_->{rpc} // '') => $_->{t} } grep { $_->{t} >= $from }
                 requests_of($c);

        push @lags, ($at{'tools/call'} // 0)
                    - ($at{'notifications/initialized'} // 0);
    }

    return sort { $a <=> $b } @lags;
}


# What has to be true after each storm, on as many peers.

sub judged {
    my ($name, $from, $clients, $all, @fakes) = @_;

    my $own = 0;
    my %starts = starts_by_agent($from, @fakes);

    is(scalar(grep { $_->status != 200 } @$all), 0, "$name: all are served")
        or diag(map { substr($_->text, 0, 100) . "\n" }
                grep { defined } (grep { $_->status != 200 } @$all)[0 .. 3]);
    is(scalar(grep { ($all->[$_]->header('Mcp-Session-Id') // '')
                     ne $clients->[$_]->session } 0 .. $#$all), 0,
       "$name: under their ids");
    is(scalar(grep { ($starts{ $_->{agent} } // 0) != 1 } @$clients), 0,
       "$name: exactly one initialize each")
        or diag(join ' ', map { $starts{ $_->{agent} } // 0 } @$clients);

    my $ahead = 0;

    for my $fake (@fakes) {
        my $n = ahead($from, map { $_->{t} } grep { $_->{t} >= $from }
                             $fake->requests(rpc => 'initialize'));

        $ahead = $n if $n > $ahead;
    }

    cmp_ok($ahead, '<=', 8 + $rate / 10, "$name: rate is respected");

    my @lags = lags($from, @$clients);

    cmp_ok($lags[@lags * 0.95], '<=', 500 * slow(),
           "$name: who waits goes on when its session lives");

    my ($last) = sort { $b <=> $a } map { $_->ms } @$all;
    my $due = 1000 * @$clients / $rate / @fakes;

    cmp_ok($last, '<=', ($due * 1.3 + 2500) * slow(),
           "$name: in time: $last ms, $due are due");

    my @ms = sort { $a <=> $b } map { $_->ms } @$all;

    diag(sprintf '%s: %d sessions, rate %d: median %d ms, last %d ms,'
         . ' ahead of the rate by %d; after its start a call waits %d ms'
         . ' (median), %d ms (95 %%)', $name, scalar @$all, $rate,
         $ms[@ms / 2], $last, $ahead, $lags[@lags / 2], $lags[@lags * 0.95]);
    return;
}


# ---- the server has forgotten them ----

sub forgotten {
    my $fake = fake();
    my $nginx = started($fake);
    my @clients = opened($nginx, $count);
    my $from = now_ms();

    $fake->forget;

    my @all = storm(@clients);

    judged('forgotten', $from, \@clients, \@all, $fake);
    is($nginx->upstream->{sessions}{revived}, $count, 'forgotten: counted');
    is(scalar(grep { $_->status != 200 } storm(@clients)), 0,
       'forgotten: all go on');
    is(scalar keys %{{ starts_by_agent(now_ms(), $fake) }}, 0,
       'forgotten: at once');
    is(scalar $nginx->log_lines(qr/\[notice\].*reviv/), 1,
       'forgotten: one notice') if !$ENV{MCP_LONG};
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- a single server is killed, and comes back while they call ----

sub restarted {
    my $fake = fake();
    my $nginx = started($fake);
    my $n = $count / 3;
    my @clients = opened($nginx, $n);

    $fake->kill;
    is(scalar(grep { $_->status != 503 } storm(@clients[0 .. 19])), 0,
       'restarted: 503 while it is down');
    $fake->start;

    my $from = now_ms();
    my @all = storm(@clients);

    judged('restarted', $from, \@clients, \@all, $fake);
    $nginx->stop;
    $fake->kill;
    return;
}


# ---- one of two is killed ----

sub two_servers {
    my ($dead, $live) = my @fakes = fakes(2);
    my $nginx = started(@fakes);
    my $n = $count / 2;
    my @all_clients = opened($nginx, $n);
    my $at_dead = { map { $_->{session} => 1 } grep { defined $_->{session} }
                    $dead->requests };
    my @clients = grep { $at_dead->{ $_->session } } @all_clients;

    cmp_ok(scalar @clients, '>=', $n / 4, 'two servers: sessions at both');
    $dead->kill;

    my $from = now_ms();
    my @all = storm(@clients);

    judged('two servers', $from, \@clients, \@all, $live);

    # those of the other one have not been touched

    my @others = grep { !$at_dead->{ $_->session } } @all_clients;

    $from = now_ms();
    is(scalar(grep { $_->status != 200 } storm(@others)), 0,
       'two servers: the others go on');
    is(scalar keys %{{ starts_by_agent($from, $live) }}, 0,
       'two servers: without a start');
    $nginx->stop;
    $live->kill;
    return;
}
