#!/usr/bin/perl

# What stands in a location and was in a keepalive's way.  Every part is a fault
# that a reviewer found.

use lib 't/lib';
use MCP::Test;

big_file();
limit_except();
cookie();
finish();


# The answer sends nginx to a big file, which threads read: the call ends when
# its time is over all the same, and so does an old worker.

sub big_file {
    my $fake = fake();
    my $built = `@{[ MCP::Nginx::binary() ]} -V 2>&1`;
    my $threads = $built =~ /--with-threads/ ? 'aio threads;' : '';
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms timeout=300ms;',
        server => 'location = /big { internal; root %%dir%%; sendfile off;'
                . " $threads }");

    open my $file, '>', "$nginx->{dir}/big" or die "big: $!\n";
    truncate $file, 8 * 2**30 or die "big: $!\n";
    close $file;

    client($nginx)->open_session(1);
    $fake->rule(when => { keepalive => 1 },
                do => { body => '', headers => [['X-Accel-Redirect',
                                                 '/big']] });

    eventually(sub { $fake->keepalives >= 3 },
               'big file: a keepalive ends in its time')
        or diag(Test::More::explain($nginx->upstream));

    my $from = now_ms();

    $nginx->reload(gone => 1, timeout => 5);
    cmp_ok(now_ms() - $from, '<', 3000 * slow(), 'big file: the old worker'
                                                 . ' ends');

    $fake->clear;
    eventually(sub { $nginx->fetch('/stub')->body
                     =~ /Active connections: 1\b.*Reading: 0 Writing: 1 /s },
               'big file: nothing is left');

    $nginx->stop;
    $fake->kill;
    return;
}


# A keepalive is a POST where methods are told apart: it does not leave by the
# road of the others.

sub limit_except {
    my ($fake, $other) = my @fakes = fakes(2);
    my $nginx = nginx(
        fakes => \@fakes, servers => [$fake->addr],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;',
        location => 'limit_except POST { deny all;'
                  . ' proxy_pass http://%%fake2%%; }');

    client($nginx)->open_session(1);
    eventually(sub { $fake->keepalives >= 2 }, 'limit_except: keepalives');
    is($nginx->keepalives('local'), 0, 'limit_except: none was refused');
    is(scalar $other->requests, 0, 'limit_except: none went elsewhere');

    $nginx->stop;
    $_->kill for @fakes;
    return;
}


# A remembered header is one for the variables, too.

sub cookie {
    my $fake = fake();
    my $nginx = nginx(
        fakes => [$fake],
        upstream => 'mcp_keepalive zone=mcp:1m interval=200ms;'
                  . ' mcp_keepalive_pass_header Cookie User-Agent;',
        location => 'proxy_set_header X-All $http_cookie;'
                  . ' proxy_set_header X-One $cookie_b;'
                  . ' proxy_set_header X-Agent $http_user_agent;');
    my $client = client($nginx, headers => [['Cookie', 'a=1; b=2'],
                                            ['User-Agent', 'agent/1']]);

    $client->open_session(1);
    eventually(sub { $fake->keepalives >= 1 }, 'cookie: a keepalive');

    my ($one) = $fake->keepalives;
    my %want = ('X-All' => 'a=1; b=2', 'X-One' => '2', 'X-Agent' => 'agent/1',
                Cookie => 'a=1; b=2');

    is(join('|', MCP::Fake::values_of($one // {}, $_)), $want{$_},
       "cookie: $_")
        for sort keys %want;

    $nginx->stop;
    $fake->kill;
    return;
}
