package MCP::Test;

# What every test file uses: Test::More, the helpers, and finish(), which
# stops all nginx (each a test of its own) in place of done_testing().

use strict;
use warnings;

use MCP::Client qw(each_client);
use MCP::Fake ();
use MCP::Nginx ();
use MCP::Util qw(drop_work_dir now_ms pause_ms slow wait_for work_dir);
use Test::More ();

our @EXPORT = qw(client clients each_client eventually fake fakes finish
                 nginx never now_ms pause_ms slow wait_for);

my $finished = 0;

# The END below has to run when a runner's patience ends, too.
$SIG{$_} = sub { exit 1 } for qw(HUP INT TERM);


sub import {
    my $target = caller;

    Test::More->export_to_level(1);
    strict->import;
    warnings->import;

    no strict 'refs';
    *{"${target}::$_"} = \&{$_} for @EXPORT;
    return;
}


sub fake { return MCP::Fake->new(@_) }


sub fakes { my ($n, @arg) = @_; return map { fake(@arg) } 1 .. $n }


sub nginx { return MCP::Nginx->new(@_) }


sub client {
    my ($nginx, %arg) = @_;

    return MCP::Client->new(nginx => $nginx, %arg);
}


sub clients {
    my ($nginx, $n, @arg) = @_;

    return map { client($nginx, @arg) } 1 .. $n;
}


# Passes as soon as the condition is true.

sub eventually {
    my ($cond, $name, $timeout) = @_;

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return Test::More::ok(scalar wait_for($cond, $timeout), $name);
}


# Passes when the condition stays false for ms.

sub never {
    my ($cond, $name, $ms) = @_;

    my $end = now_ms() + $ms;
    my $seen;

    until ($seen = $cond->()) {
        last if now_ms() >= $end;
        pause_ms(20);
    }

    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return Test::More::ok(!$seen, $name);
}


sub finish {
    MCP::Nginx::stop_all();
    $finished = 1;
    Test::More::done_testing();
    return;
}


# The folder with all logs is kept when something failed or on MCP_KEEP.

END {
    my $code = $?;

    MCP::Nginx::kill_all();
    $_->kill for grep { $_->{owner} == $$ } MCP::Fake->all;

    if ($finished && Test::More->builder->is_passing && !$ENV{MCP_KEEP}) {
        drop_work_dir();
    }
    elsif (defined MCP::Util::kept_dir()) {
        Test::More::diag('logs are in ' . MCP::Util::kept_dir());
    }

    $? = $code;
}


1;
