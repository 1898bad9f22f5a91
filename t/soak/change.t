#!/usr/bin/perl

# The zone gets another size by a reload; the binary is upgraded (USR2): both
# start empty and learn again what passes, old streams end by themselves.

use lib 't/lib';
use MCP::Process qw(members spawn);
use MCP::Soak;
use MCP::Test;

size();
upgrade();
finish();


sub conf { return "mcp_keepalive zone=mcp:$_[0] interval=300ms; keepalive 8;" }


sub size {
    my @fakes = fakes(2);
    my $nginx = nginx(fakes => \@fakes, workers => 2, upstream => conf('1m'));
    my @clients = clients($nginx, 20);

    each_client(\@clients, [qw(initialize initialized call)]);
    is($nginx->upstream->{sessions}{active}, 20, 'size: 20 sessions');

    for my $size (qw(2m 512k 1m)) {
        $nginx->reload(gone => 1, parts => { upstream => conf($size) });
        is($nginx->upstream->{sessions}{active}, 0, "size: $size is empty");

        # where the balancer sends it, its server knows it or says 404
        my @x = each_client(\@clients, [('call') x 6]);
        my @lost = grep { !grep { $_->status == 200 } @x[$_ * 6 .. $_ * 6 + 5] }
                   0 .. $#clients;

        cmp_ok($nginx->upstream->{sessions}{active}, '>=', 20 - @lost,
               "size: those seen are learned again");

        @clients = clients($nginx, 20);
        each_client(\@clients, [qw(initialize initialized call)]);
        all_well("size: $size", \@fakes, @clients);
    }

    nobody_lingers($nginx, 'size');
    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# nginx takes USR2 only if it is not its starter's child any more: a shell in
# between starts it and goes.  All that follows stays in the shell's session.

sub upgrade {
    my @fakes = fakes(2);
    my $nginx = MCP::Nginx->prepare(fakes => \@fakes, workers => 2,
                                    listen => '', upstream => conf('1m'));
    my $session = spawn("$nginx->{dir}/output.log", 'sh', '-c', '"$@" & sleep 1',
                        'sh', $nginx->command);
    my $pid = sub {
        return MCP::Util::slurp("$nginx->{dir}/nginx.pid") =~ /(\d+)/ ? $1 : 0;
    };

    waitpid $session, 0;
    ok(wait_for(sub { $pid->() && members($session) == 3
                      && $nginx->fetch('/up')->status == 200 }, 10),
       'upgrade: runs') or return;

    my $old = $pid->();
    my @clients = clients($nginx, 20);

    each_client(\@clients, [qw(initialize initialized call)]);

    my @open = streams(@clients[0 .. 4]);
    my %before = map { $_ => 1 } members($session);

    kill 'USR2', $old;
    ok(wait_for(sub { $pid->() && $pid->() != $old
                      && members($session) == 6 }, 10),
       'upgrade: a new master and its workers');

    my $new = $pid->();

    kill 'QUIT', $old;
    MCP::Exchange::drive(\@open, timeout => 5);
    is(scalar(grep { $_->over && !$_->{failed} } @open), 5,
       'upgrade: old streams end');
    ok(wait_for(sub { members($session) == 3 }, 10),
       'upgrade: the old workers have gone, and their master');

    is($nginx->upstream->{sessions}{active}, 0, 'upgrade: starts empty');

    my @fresh = clients($nginx, 20);

    each_client(\@fresh, [qw(initialize initialized call)]);
    all_well('upgrade', \@fakes, @fresh);
    asked_again('upgrade', \@fakes, @fresh);

    kill 'QUIT', $new;
    ok(wait_for(sub { !members($session) }, 10), 'upgrade: ends');
    kill 'KILL', members($session);
    $nginx->check_log;
    return;
}
