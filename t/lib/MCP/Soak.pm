package MCP::Soak;

# What the files of t/soak ask at their end: nothing grew, nobody lingers, the
# sessions are where they were, and keepalives go on.

use strict;
use warnings;

use Exporter 'import';
use MCP::Client ();
use MCP::Exchange ();
use MCP::Process qw(members);
use MCP::Util qw(now_ms slow slurp wait_for);
use Test::More ();

our @EXPORT = qw(all_well asked_again memory_kb no_growth nobody_lingers
                 streams tally);


# Memory of the workers that is their own, kB, the largest.

sub memory_kb {
    my ($nginx) = @_;

    my ($max) = sort { $b <=> $a } map {
        slurp("/proc/$_/status") =~ /^RssAnon:\s+(\d+)/m ? $1 : 0
    } $nginx->workers;

    return $max // 0;
}


sub no_growth {
    my ($before, $after, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;

    # a sanitizer keeps what was freed
    Test::More::cmp_ok($after - $before, '<=', slow() == 1 ? 2048 : 1e9,
                       "$name: memory is flat ($before kB, $after kB)");
    return;
}


# One master and as many workers as there are to be.

sub nobody_lingers {
    my ($nginx, $name) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $ok = wait_for(sub { members($nginx->{pid}) == 1 + $nginx->{workers} },
                      10);

    Test::More::ok($ok, "$name: no worker lingers")
        or Test::More::diag(join ' ', members($nginx->{pid}));
    return;
}


# Every session answers and its requests reach its server.

sub all_well {
    my ($name, $fakes, @clients) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $stray = misrouted(@$fakes);
    my @x = MCP::Client::each_client(\@clients, [qw(call call)]);
    my @bad = grep { $_->status != 200 } @x;

    Test::More::is(scalar @bad, 0, "$name: every session works")
        or Test::More::diag(map { $_->text . "\n" } @bad[0 .. 2]);
    Test::More::is(misrouted(@$fakes) - $stray, 0,
                   "$name: each at its own server");
    return;
}


sub misrouted {
    my $sum = 0;

    $sum += $_->stats->{misrouted} for @_;
    return $sum;
}


sub asked_again {
    my ($name, $fakes, @clients) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $now = now_ms();
    my $missing;
    my $ok = wait_for(sub {
        my %got = map { $_->{session} => 1 } grep { $_->{t} > $now }
                  map { $_->keepalives } @$fakes;

        $missing = grep { !$got{ $_->session } } @clients;
        return $missing == 0;
    }, 20, 100);

    Test::More::ok($ok, "$name: every session is asked again")
        or Test::More::diag("$missing are not");
    return;
}


# What a load saw: how often each status.

sub tally {
    my %n;

    $n{ $_->{status} }++ for @_;
    return %n;
}


# Event streams of clients, open.

sub streams {
    my (@clients) = @_;

    my @x = map { $_->start_get } @clients;

    MCP::Exchange::drive(\@x, timeout => 10, until => sub {
        return !grep { !$_->status } @x;
    });
    return @x;
}


1;
